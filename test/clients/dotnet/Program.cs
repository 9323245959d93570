using Epitaph.Clients;

// dotnet run -- <endpoint> <key> [group…]: runs the checks against a server, all groups or those named.
if (args.Length < 2)
{
    Console.Error.WriteLine("usage: clients <endpoint> <key> [group…]");
    return 2;
}

var report = new Report(groups: args[2..]);
await CosmosChecks.RunAsync(report, args[0], args[1]);
await DocumentDbChecks.RunAsync(report, args[0], args[1]);
Console.WriteLine($"{report.Passed} passed, {report.Failed} failed");
return report.Failed == 0 && report.Passed > 0 ? 0 : 1;
