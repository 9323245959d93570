using System.Net;
using Microsoft.Azure.Documents;
using Microsoft.Azure.Documents.Client;
using Microsoft.Azure.Documents.Linq;
using Newtonsoft.Json.Linq;

namespace Epitaph.Clients;

/// <summary>The older Microsoft.Azure.DocumentDB.Core, which many programs still run on.</summary>
internal static class DocumentDbChecks
{
    public static async Task RunAsync(Report report, string endpoint, string key)
    {
        using var client = new DocumentClient(new Uri(endpoint), key, new ConnectionPolicy
        {
            ConnectionMode = Modes.IsDirect ? ConnectionMode.Direct : ConnectionMode.Gateway,
            ConnectionProtocol = Modes.IsDirect ? Protocol.Tcp : Protocol.Https,
            RequestTimeout = TimeSpan.FromSeconds(20),
        });
        var name = $"net2-{Guid.NewGuid():N}";
        await client.CreateDatabaseIfNotExistsAsync(new Database { Id = name });
        try
        {
            await CatalogAsync(report, client, name);
            await ItemsAsync(report, client, name);
            await FeedAsync(report, client, name);
        }
        finally
        {
            await client.DeleteDatabaseAsync(UriFactory.CreateDatabaseUri(name));
        }
    }

    private static RequestOptions Of(string customer) => new() { PartitionKey = new PartitionKey(customer) };

    private static async Task<Uri> NewCollectionAsync(
        DocumentClient client, string database, string name, int? defaultTtl = null, RequestOptions? options = null)
    {
        var collection = new DocumentCollection { Id = name, DefaultTimeToLive = defaultTtl };
        collection.PartitionKey.Paths.Add("/customer");
        await client.CreateDocumentCollectionAsync(UriFactory.CreateDatabaseUri(database), collection, options);
        return UriFactory.CreateDocumentCollectionUri(database, name);
    }

    private static async Task<List<T>> AllAsync<T>(IDocumentQuery<T> query)
    {
        var found = new List<T>();
        while (query.HasMoreResults) found.AddRange(await query.ExecuteNextAsync<T>());
        return found;
    }

    private static async Task CatalogAsync(Report report, DocumentClient client, string database)
    {
        await report.CheckAsync("old-catalog", "collections are created, replaced and read", async () =>
        {
            var uri = await NewCollectionAsync(client, database, "catalog", 60);
            DocumentCollection read = await client.ReadDocumentCollectionAsync(uri);
            Expect.Equal(60, read.DefaultTimeToLive, "ttl");
            read.DefaultTimeToLive = null;
            DocumentCollection replaced = await client.ReplaceDocumentCollectionAsync(read);
            Expect.Equal(null, replaced.DefaultTimeToLive, "no ttl");
            var feed = await client.ReadDocumentCollectionFeedAsync(UriFactory.CreateDatabaseUri(database));
            Expect.True(feed.Any(collection => collection.Id == "catalog"), "listed");
            await client.DeleteDocumentCollectionAsync(read.SelfLink);
            var error = await Expect.RefusedAsync<DocumentClientException>(() => client.ReadDocumentCollectionAsync(uri), "reading it");
            Expect.Equal(HttpStatusCode.NotFound, error.StatusCode, "gone");
        });
        await report.CheckAsync("old-throughput", "offers are found, read and replaced", async () =>
        {
            var uri = await NewCollectionAsync(client, database, "offers", options: new RequestOptions { OfferThroughput = 500 });
            DocumentCollection collection = await client.ReadDocumentCollectionAsync(uri);
            Offer offer = client.CreateOfferQuery().Where(found => found.ResourceLink == collection.SelfLink).AsEnumerable().Single();
            Expect.Equal(500, ((OfferV2)offer).Content.OfferThroughput, "throughput");
            await client.ReplaceOfferAsync(new OfferV2(offer, 600));
            Offer again = await client.ReadOfferAsync(offer.SelfLink);
            Expect.Equal(600, ((OfferV2)again).Content.OfferThroughput, "replaced");
        });
    }

    private static async Task ItemsAsync(Report report, DocumentClient client, string database)
    {
        var uri = await NewCollectionAsync(client, database, "items", -1);
        Uri DocumentUri(string id) => UriFactory.CreateDocumentUri(database, "items", id);
        await report.CheckAsync("old-items", "documents are created, read, replaced, upserted and deleted", async () =>
        {
            Document created = await client.CreateDocumentAsync(uri, new { id = "a", customer = "ann", total = 1 });
            Expect.True(created.SelfLink is { Length: > 0 }, "a self link");
            Document read = await client.ReadDocumentAsync(DocumentUri("a"), Of("ann"));
            Expect.Equal(1, read.GetPropertyValue<int>("total"), "total");
            Document bySelf = await client.ReadDocumentAsync(created.SelfLink, Of("ann"));
            Expect.Equal("a", bySelf.Id, "by its self link");
            read.SetPropertyValue("total", 2);
            Document replaced = await client.ReplaceDocumentAsync(read, Of("ann"));
            Expect.Equal(2, replaced.GetPropertyValue<int>("total"), "replaced");
            await client.UpsertDocumentAsync(uri, new { id = "b", customer = "bob", total = 3 });
            var stale = new RequestOptions
            {
                PartitionKey = new PartitionKey("ann"),
                AccessCondition = new AccessCondition { Type = AccessConditionType.IfMatch, Condition = created.ETag },
            };
            var error = await Expect.RefusedAsync<DocumentClientException>(() => client.DeleteDocumentAsync(DocumentUri("a"), stale), "an old etag");
            Expect.Equal(HttpStatusCode.PreconditionFailed, error.StatusCode, "status");
            await client.DeleteDocumentAsync(DocumentUri("a"), Of("ann"));
            var gone = await Expect.RefusedAsync<DocumentClientException>(() => client.ReadDocumentAsync(DocumentUri("a"), Of("ann")), "reading it");
            Expect.Equal(HttpStatusCode.NotFound, gone.StatusCode, "gone");
        });
        await report.CheckAsync("old-items", "documents expire", async () =>
        {
            await client.CreateDocumentAsync(uri, new { id = "short", customer = "ann", ttl = 1 });
            await Expect.SoonAsync(async () =>
            {
                try
                {
                    await client.ReadDocumentAsync(DocumentUri("short"), Of("ann"));
                    return false;
                }
                catch (DocumentClientException error) when (error.StatusCode == HttpStatusCode.NotFound)
                {
                    return true;
                }
            }, "gone");
        });
        await report.CheckAsync("old-queries", "documents are queried, by SQL and LINQ, page by page", async () =>
        {
            for (var n = 0; n < 12; n += 1)
                await client.CreateDocumentAsync(uri, new { id = $"q{n:00}", customer = $"customer{n % 3}", total = n });
            var all = new FeedOptions { EnableCrossPartitionQuery = true, MaxItemCount = 5 };
            var ordered = await AllAsync(client.CreateDocumentQuery<Document>(uri,
                "SELECT * FROM c WHERE STARTSWITH(c.id, 'q') ORDER BY c.total DESC", all).AsDocumentQuery());
            Expect.Same(Enumerable.Range(0, 12).Reverse().Select(n => $"q{n:00}"), ordered.Select(document => document.Id), "ordered");
            var counted = await AllAsync(client.CreateDocumentQuery<int>(uri, "SELECT VALUE COUNT(1) FROM c WHERE STARTSWITH(c.id, 'q')", all).AsDocumentQuery());
            Expect.Same([12], counted, "counted");
            var one = new FeedOptions { PartitionKey = new PartitionKey("customer1") };
            Expect.Equal(4, client.CreateDocumentQuery<Document>(uri, one).AsEnumerable().Count(), "of one key");
            var feed = await client.ReadDocumentFeedAsync(uri, new FeedOptions { MaxItemCount = 100 });
            Expect.True(feed.Count >= 12, "as a feed");
        });
        await report.CheckAsync("old-queries", "groups are counted over several ranges", async () =>
        {
            var large = await NewCollectionAsync(client, database, "large", options: new RequestOptions { OfferThroughput = 18_000 });
            for (var n = 0; n < 12; n += 1)
                await client.CreateDocumentAsync(large, new { id = $"g{n}", customer = $"customer{n % 5}", group = n % 3, total = n });
            var groups = await AllAsync(client.CreateDocumentQuery<JObject>(large,
                "SELECT c.group, COUNT(1) AS n, SUM(c.total) AS total, AVG(c.total) AS mean FROM c GROUP BY c.group",
                new FeedOptions { EnableCrossPartitionQuery = true, MaxItemCount = 2 }).AsDocumentQuery());
            Expect.Same(["0 4 18 4.5", "1 4 22 5.5", "2 4 26 6.5"],
                groups.Select(row => $"{row["group"]} {row["n"]} {row["total"]} {row["mean"]}").Order(), "groups");
        });
    }

    private static async Task FeedAsync(Report report, DocumentClient client, string database)
    {
        await report.CheckAsync("old-feed", "changes are read of each partition key range", async () =>
        {
            var uri = await NewCollectionAsync(client, database, "feed");
            for (var n = 0; n < 6; n += 1) await client.CreateDocumentAsync(uri, new { id = $"f{n}", customer = $"c{n}" });
            var ranges = await client.ReadPartitionKeyRangeFeedAsync(uri);
            var seen = new List<string>();
            foreach (var range in ranges)
            {
                var query = client.CreateDocumentChangeFeedQuery(uri, new ChangeFeedOptions
                {
                    PartitionKeyRangeId = range.Id,
                    StartFromBeginning = true,
                    MaxItemCount = 2,
                });
                while (query.HasMoreResults) seen.AddRange((await query.ExecuteNextAsync<Document>()).Select(document => document.Id));
            }
            Expect.Same(Enumerable.Range(0, 6).Select(n => $"f{n}"), seen.Order(), "all changes");
        });
    }
}
