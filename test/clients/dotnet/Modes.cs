namespace Epitaph.Clients;

internal static class Modes
{
    /// <summary>Whether the clients are to connect in direct mode, the default of the newer one, which needs TLS.</summary>
    public static readonly bool IsDirect = Environment.GetEnvironmentVariable("EPITAPH_TEST_DIRECT_MODE") == "1";
}
