using System.Diagnostics;

namespace Epitaph.Clients;

/// <summary>Runs checks one after the other and prints a line for each.</summary>
internal sealed class Report(IReadOnlyCollection<string> groups)
{
    public int Passed { get; private set; }
    public int Failed { get; private set; }

    public async Task CheckAsync(string group, string name, Func<Task> check)
    {
        if (groups.Count > 0 && !groups.Contains(group)) return;
        var watch = Stopwatch.StartNew();
        try
        {
            await check();
            Passed += 1;
            Console.WriteLine($"ok {group}: {name} ({watch.ElapsedMilliseconds} ms)");
        }
        catch (Exception error)
        {
            Failed += 1;
            var lines = error.ToString().Split('\n').Select(line => line.Trim());
            Console.WriteLine($"FAILED {group}: {name}: {string.Join(" / ", lines)[..Math.Min(1500, string.Join(" / ", lines).Length)]}");
        }
    }
}

internal sealed class Unexpected(string message) : Exception(message);

/// <summary>What a check says of what it sees.</summary>
internal static class Expect
{
    public static void Equal<T>(T expected, T actual, string what)
    {
        if (!EqualityComparer<T>.Default.Equals(expected, actual))
            throw new Unexpected($"{what}: expected {expected}, not {actual}");
    }

    public static void Same<T>(IEnumerable<T> expected, IEnumerable<T> actual, string what)
    {
        Equal(string.Join(",", expected), string.Join(",", actual), what);
    }

    public static void True(bool condition, string what)
    {
        if (!condition) throw new Unexpected($"not so: {what}");
    }

    /// <summary>Runs what has to be refused, and gives the refusal.</summary>
    public static async Task<TError> RefusedAsync<TError>(Func<Task> action, string what)
        where TError : Exception
    {
        try
        {
            await action();
        }
        catch (TError error)
        {
            return error;
        }
        throw new Unexpected($"{what} was not refused");
    }

    /// <summary>Waits for what has to become so within some seconds.</summary>
    public static async Task SoonAsync(Func<Task<bool>> condition, string what, int seconds = 15)
    {
        var end = DateTime.UtcNow.AddSeconds(seconds);
        while (!await condition())
        {
            if (DateTime.UtcNow > end) throw new Unexpected($"did not become so in {seconds} s: {what}");
            await Task.Delay(100);
        }
    }
}
