using System.Net;
using Azure.Core;
using Microsoft.Azure.Cosmos;
using Microsoft.Azure.Cosmos.Linq;
using Microsoft.Azure.Cosmos.Scripts;
using Newtonsoft.Json;
using Newtonsoft.Json.Linq;

namespace Epitaph.Clients;

internal sealed record Order(
    [property: JsonProperty("id")] string Id,
    [property: JsonProperty("customer")] string Customer,
    [property: JsonProperty("total")] double Total,
    [property: JsonProperty("tags")] string[]? Tags = null,
    [property: JsonProperty("ttl", NullValueHandling = NullValueHandling.Ignore)] int? Ttl = null);

/// <summary>Microsoft.Azure.Cosmos, as a program of a user would use it.</summary>
internal static class CosmosChecks
{
    public static async Task RunAsync(Report report, string endpoint, string key)
    {
        using var client = NewClient(endpoint, key);
        var databaseName = $"net3-{Guid.NewGuid():N}";
        Database database = client.GetDatabase(databaseName);

        await report.CheckAsync("account", "is read", async () =>
        {
            AccountProperties account = await client.ReadAccountAsync();
            Expect.True(account.ReadableRegions.Any(), "there is a region");
            Expect.Equal(ConsistencyLevel.Session, account.Consistency.DefaultConsistencyLevel, "consistency");
        });
        await report.CheckAsync("account", "a wrong key is refused with 401", async () =>
        {
            using var other = NewClient(endpoint, Convert.ToBase64String(new byte[64]));
            var error = await Expect.RefusedAsync<CosmosException>(() => other.ReadAccountAsync(), "a wrong key");
            Expect.Equal(HttpStatusCode.Unauthorized, error.StatusCode, "status");
        });

        // All that follows needs it, whichever groups run.
        await client.CreateDatabaseIfNotExistsAsync(databaseName);
        try
        {
            await CatalogAsync(report, client, database);
            await ItemsAsync(report, endpoint, key, database);
            await TimeToLiveAsync(report, database);
            await QueriesAsync(report, database);
            await ThroughputAsync(report, client, database);
            await BatchesAsync(report, client, endpoint, key, database);
            await HierarchyAsync(report, database);
            await ChangeFeedAsync(report, database);
            await UsersAsync(report, endpoint, database);
            if (Environment.GetEnvironmentVariable("EPITAPH_TEST_IDENTITY_TOKEN") is { } token)
                await IdentitiesAsync(report, endpoint, database, new GivenToken(token));
            await ScriptsAsync(report, database);
            await LinqChecks.RunAsync(report, database);
            await GrowthChecks.RunAsync(report, (bulk, retries) => NewClient(endpoint, key, bulk, retries), database);
        }
        finally
        {
            await database.DeleteAsync();
        }
    }

    private static CosmosClient NewClient(string endpoint, string key, bool bulk = false, int retries = 9) =>
        new(endpoint, key, new CosmosClientOptions
        {
            ConnectionMode = Mode,
            AllowBulkExecution = bulk,
            RequestTimeout = TimeSpan.FromSeconds(20),
            MaxRetryAttemptsOnRateLimitedRequests = retries,
        });

    private static readonly ConnectionMode Mode = Modes.IsDirect ? ConnectionMode.Direct : ConnectionMode.Gateway;

    private static async Task<Container> NewContainerAsync(
        Database database, string name, Action<ContainerProperties>? configure = null, int? throughput = null)
    {
        var properties = new ContainerProperties(name, "/customer");
        configure?.Invoke(properties);
        return await database.CreateContainerAsync(properties, throughput);
    }

    private static PartitionKey Of(string customer) => new(customer);

    private static async Task<List<T>> AllAsync<T>(FeedIterator<T> pages)
    {
        var found = new List<T>();
        while (pages.HasMoreResults) found.AddRange(await pages.ReadNextAsync());
        return found;
    }

    private static async Task CatalogAsync(Report report, CosmosClient client, Database database)
    {
        await report.CheckAsync("catalog", "databases are created, read, listed, queried and deleted", async () =>
        {
            var name = $"net3-{Guid.NewGuid():N}";
            DatabaseResponse created = await client.CreateDatabaseAsync(name);
            Expect.Equal(HttpStatusCode.Created, created.StatusCode, "create");
            Expect.True(created.ETag is { Length: > 0 }, "etag");
            var error = await Expect.RefusedAsync<CosmosException>(() => client.CreateDatabaseAsync(name), "a second one");
            Expect.Equal(HttpStatusCode.Conflict, error.StatusCode, "duplicate");
            Expect.Equal(name, (await client.GetDatabase(name).ReadAsync()).Resource.Id, "read");
            var all = await AllAsync(client.GetDatabaseQueryIterator<DatabaseProperties>());
            Expect.True(all.Any(found => found.Id == name), "listed");
            var query = new QueryDefinition("SELECT * FROM c WHERE c.id = @id").WithParameter("@id", name);
            Expect.Equal(1, (await AllAsync(client.GetDatabaseQueryIterator<DatabaseProperties>(query))).Count, "queried");
            await client.GetDatabase(name).DeleteAsync();
            var gone = await Expect.RefusedAsync<CosmosException>(() => client.GetDatabase(name).ReadAsync(), "reading it");
            Expect.Equal(HttpStatusCode.NotFound, gone.StatusCode, "gone");
        });
        await report.CheckAsync("catalog", "containers keep what they were created with, and are replaced", async () =>
        {
            var container = await NewContainerAsync(database, "catalog", properties =>
            {
                properties.DefaultTimeToLive = 3600;
                properties.IndexingPolicy.ExcludedPaths.Add(new ExcludedPath { Path = "/notes/*" });
                properties.PartitionKeyDefinitionVersion = PartitionKeyDefinitionVersion.V2;
            });
            ContainerProperties read = (await container.ReadContainerAsync()).Resource;
            Expect.Equal("/customer", read.PartitionKeyPath, "partition key");
            Expect.Equal(3600, read.DefaultTimeToLive, "ttl");
            Expect.True(read.IndexingPolicy.ExcludedPaths.Any(path => path.Path == "/notes/*"), "excluded path");
            read.DefaultTimeToLive = -1;
            ContainerResponse replaced = await container.ReplaceContainerAsync(read);
            Expect.Equal(-1, replaced.Resource.DefaultTimeToLive, "replaced ttl");
            read.DefaultTimeToLive = null;
            Expect.Equal(null, (await container.ReplaceContainerAsync(read)).Resource.DefaultTimeToLive, "no ttl");
            read.DefaultTimeToLive = 0;
            var error = await Expect.RefusedAsync<CosmosException>(() => container.ReplaceContainerAsync(read), "ttl 0");
            Expect.Equal(HttpStatusCode.BadRequest, error.StatusCode, "ttl 0");
            var all = await AllAsync(database.GetContainerQueryIterator<ContainerProperties>());
            Expect.True(all.Any(found => found.Id == "catalog"), "listed");
            await container.DeleteContainerAsync();
            var gone = await Expect.RefusedAsync<CosmosException>(() => container.ReadContainerAsync(), "reading it");
            Expect.Equal(HttpStatusCode.NotFound, gone.StatusCode, "gone");
        });
        await report.CheckAsync("catalog", "a container created again under its name is another one to the same client", async () =>
        {
            var first = await NewContainerAsync(database, "again");
            await first.CreateItemAsync(new Order("1", "ann", 1), Of("ann"));
            await first.DeleteContainerAsync();
            var second = await NewContainerAsync(database, "again");
            await second.CreateItemAsync(new Order("1", "ann", 2), Of("ann"));
            Expect.Equal(2.0, (await second.ReadItemAsync<Order>("1", Of("ann"))).Resource.Total, "total");
        });
    }

    private static async Task ItemsAsync(Report report, string endpoint, string key, Database database)
    {
        var container = await NewContainerAsync(database, "items");
        await report.CheckAsync("items", "are created, read, replaced, upserted and deleted", async () =>
        {
            ItemResponse<Order> created = await container.CreateItemAsync(new Order("a", "ann", 1.5), Of("ann"));
            Expect.Equal(HttpStatusCode.Created, created.StatusCode, "create");
            Expect.True(created.RequestCharge > 0, "a charge");
            Expect.True(created.Headers.Session is { Length: > 0 }, "a session token");
            Expect.True(created.ActivityId is { Length: > 0 }, "an activity id");
            ItemResponse<Order> read = await container.ReadItemAsync<Order>("a", Of("ann"));
            Expect.Equal(1.5, read.Resource.Total, "total");
            Expect.Equal(created.ETag, read.ETag, "etag");
            var duplicate = await Expect.RefusedAsync<CosmosException>(
                () => container.CreateItemAsync(new Order("a", "ann", 2), Of("ann")), "a duplicate");
            Expect.Equal(HttpStatusCode.Conflict, duplicate.StatusCode, "duplicate");
            ItemResponse<Order> replaced = await container.ReplaceItemAsync(new Order("a", "ann", 2), "a", Of("ann"));
            Expect.Equal(HttpStatusCode.OK, replaced.StatusCode, "replace");
            Expect.True(replaced.ETag != read.ETag, "another etag");
            Expect.Equal(HttpStatusCode.OK, (await container.UpsertItemAsync(new Order("a", "ann", 3))).StatusCode, "upsert");
            Expect.Equal(HttpStatusCode.Created, (await container.UpsertItemAsync(new Order("b", "bob", 3))).StatusCode, "upsert of a new one");
            Expect.Equal(HttpStatusCode.NoContent, (await container.DeleteItemAsync<Order>("a", Of("ann"))).StatusCode, "delete");
            var gone = await Expect.RefusedAsync<CosmosException>(() => container.ReadItemAsync<Order>("a", Of("ann")), "reading it");
            Expect.Equal(HttpStatusCode.NotFound, gone.StatusCode, "gone");
            Expect.Equal(0, gone.SubStatusCode, "substatus");
        });
        await report.CheckAsync("items", "carry system properties", async () =>
        {
            JObject created = (await container.CreateItemAsync(JObject.FromObject(new Order("system", "ann", 1)), Of("ann"))).Resource;
            foreach (var name in new[] { "_rid", "_self", "_etag", "_ts", "_attachments" })
                Expect.True(created[name] is not null, name);
        });
        await report.CheckAsync("items", "are written only if their etag still matches", async () =>
        {
            var first = await container.UpsertItemAsync(new Order("etag", "ann", 1), Of("ann"));
            await container.UpsertItemAsync(new Order("etag", "ann", 2), Of("ann"));
            var error = await Expect.RefusedAsync<CosmosException>(() => container.ReplaceItemAsync(
                new Order("etag", "ann", 3), "etag", Of("ann"), new ItemRequestOptions { IfMatchEtag = first.ETag }), "an old etag");
            Expect.Equal(HttpStatusCode.PreconditionFailed, error.StatusCode, "status");
            using ResponseMessage unchanged = await container.ReadItemStreamAsync("etag", Of("ann"), new ItemRequestOptions
            {
                IfNoneMatchEtag = (await container.ReadItemAsync<Order>("etag", Of("ann"))).ETag,
            });
            Expect.Equal(HttpStatusCode.NotModified, unchanged.StatusCode, "unchanged");
            var made = await container.UpsertItemAsync(
                new Order("etag of none", "ann", 1), Of("ann"), new ItemRequestOptions { IfMatchEtag = first.ETag });
            Expect.Equal(HttpStatusCode.Created, made.StatusCode, "what has no etag yet");
        });
        await report.CheckAsync("items", "are taken in binary JSON, in a batch too", async () =>
        {
            const string Switch = "AZURE_COSMOS_BINARY_ENCODING_ENABLED";
            Environment.SetEnvironmentVariable(Switch, "True");
            try
            {
                string[] tags = ["3f2504e0-4f89-11d3-9a0c-0305e82c3301", "2026-11-22T09:15:47Z", "ünï 👻", new string('x', 5_000)];
                var sent = new Order("binary", "ann", 0.1, [.. tags, .. tags]);
                await container.CreateItemAsync(sent, Of("ann"));
                Order read = await container.ReadItemAsync<Order>("binary", Of("ann"));
                Expect.Same(sent.Tags!, read.Tags!, "tags");
                Expect.Equal(0.1, read.Total, "total");
                using TransactionalBatchResponse response = await container.CreateTransactionalBatch(Of("ann"))
                    .CreateItem(sent with { Id = "binary in a batch" })
                    .ReplaceItem("binary", sent with { Total = 2 })
                    .ExecuteAsync();
                Expect.True(response.IsSuccessStatusCode, $"success, not {response.StatusCode} {response.ErrorMessage}");
            }
            finally
            {
                Environment.SetEnvironmentVariable(Switch, null);
            }
        });
        await report.CheckAsync("items", "come without content when none is wanted", async () =>
        {
            var quiet = new ItemRequestOptions { EnableContentResponseOnWrite = false };
            var created = await container.CreateItemAsync(new Order("quiet", "ann", 1), Of("ann"), quiet);
            Expect.Equal(HttpStatusCode.Created, created.StatusCode, "create");
            Expect.True(created.Resource is null, "no content");
        });
        await report.CheckAsync("items", "with ids of any characters are found again", async () =>
        {
            foreach (var id in new[] { "with blank", "ünï", "a+b", "q=1&r=2", "semi;colon", "'quoted'", "日本" })
            {
                await container.CreateItemAsync(new Order(id, "ann", 1), Of("ann"));
                Expect.Equal(id, (await container.ReadItemAsync<Order>(id, Of("ann"))).Resource.Id, "id");
                await container.DeleteItemAsync<Order>(id, Of("ann"));
            }
        });
        await report.CheckAsync("items", "under null, absent, numeric and boolean keys are kept apart", async () =>
        {
            var keyed = await database.CreateContainerAsync("keys", "/k");
            PartitionKey[] keys = [PartitionKey.Null, PartitionKey.None, new(1.5), new(true), new("1.5")];
            string[] bodies = ["""{"id":"x","k":null,"n":0}""", """{"id":"x","n":1}""", """{"id":"x","k":1.5,"n":2}""",
                """{"id":"x","k":true,"n":3}""", """{"id":"x","k":"1.5","n":4}"""];
            for (var index = 0; index < keys.Length; index += 1)
                await keyed.Container.CreateItemAsync(JObject.Parse(bodies[index]), keys[index]);
            for (var index = 0; index < keys.Length; index += 1)
            {
                var found = (await keyed.Container.ReadItemAsync<JObject>("x", keys[index])).Resource;
                Expect.Equal(index, (int)found["n"]!, $"key {index}");
                var scoped = new QueryRequestOptions { PartitionKey = keys[index] };
                var queried = await AllAsync(keyed.Container.GetItemQueryIterator<JObject>("SELECT * FROM c", requestOptions: scoped));
                Expect.Same([index], queried.Select(item => (int)item["n"]!), $"query of key {index}");
            }
        });
        await report.CheckAsync("items", "of another key than said are refused", async () =>
        {
            var error = await Expect.RefusedAsync<CosmosException>(
                () => container.CreateItemAsync(new Order("wrong", "ann", 1), Of("bob")), "a wrong key");
            Expect.Equal(HttpStatusCode.BadRequest, error.StatusCode, "status");
            Expect.Equal(1001, error.SubStatusCode, "substatus");
        });
        await report.CheckAsync("items", "are patched, on condition", async () =>
        {
            await container.UpsertItemAsync(new Order("patch", "ann", 1, ["a"]), Of("ann"));
            var patched = await container.PatchItemAsync<Order>("patch", Of("ann"),
            [
                PatchOperation.Increment("/total", 2.5),
                PatchOperation.Add("/tags/-", "b"),
                PatchOperation.Set("/note", "n"),
                PatchOperation.Replace("/tags/0", "c"),
                PatchOperation.Move("/note", "/remark"),
                PatchOperation.Remove("/remark"),
            ]);
            Expect.Equal(3.5, patched.Resource.Total, "total");
            Expect.Same(["c", "b"], patched.Resource.Tags!, "tags");
            var error = await Expect.RefusedAsync<CosmosException>(() => container.PatchItemAsync<Order>("patch", Of("ann"),
                [PatchOperation.Set("/total", 0)],
                new PatchItemRequestOptions { FilterPredicate = "FROM c WHERE c.total > 100" }), "an unmet condition");
            Expect.Equal(HttpStatusCode.PreconditionFailed, error.StatusCode, "status");
            Expect.Equal(1110, error.SubStatusCode, "substatus");
        });
        await report.CheckAsync("items", "are read many at a time", async () =>
        {
            var wanted = new List<(string, PartitionKey)>();
            for (var n = 0; n < 12; n += 1)
            {
                await container.UpsertItemAsync(new Order($"many{n}", $"customer{n % 4}", n), Of($"customer{n % 4}"));
                wanted.Add(($"many{n}", Of($"customer{n % 4}")));
            }
            wanted.Add(("none", Of("ann")));
            FeedResponse<Order> found = await container.ReadManyItemsAsync<Order>(wanted);
            Expect.Equal(12, found.Count, "found");
            Expect.Equal(66.0, found.Sum(order => order.Total), "sum");
        });
        await report.CheckAsync("items", "keep integers of 64 bits, and are found by them", async () =>
        {
            foreach (var n in new[] { long.MaxValue, long.MaxValue - 1, long.MinValue })
            {
                var sent = new JObject { ["id"] = $"long{n}", ["customer"] = "long", ["n"] = n };
                await container.CreateItemAsync(sent, Of("long"));
                Expect.Equal(n, (long)(await container.ReadItemAsync<JObject>($"long{n}", Of("long"))).Resource["n"]!, "read");
                var query = new QueryDefinition("SELECT VALUE c.n FROM c WHERE c.n = @n").WithParameter("@n", n);
                Expect.Same(new[] { n }, await AllAsync(container.GetItemQueryIterator<long>(query)), "found");
            }
        });
        await report.CheckAsync("items", "too large are refused with 413", async () =>
        {
            var large = new Order(new string('x', 10), "ann", 1, [new string('y', 3_000_000)]);
            var error = await Expect.RefusedAsync<CosmosException>(() => container.CreateItemAsync(large, Of("ann")), "3 MB");
            Expect.Equal(HttpStatusCode.RequestEntityTooLarge, error.StatusCode, "status");
        });
        await report.CheckAsync("items", "are read by another client at the session of the one that wrote", async () =>
        {
            var written = await container.UpsertItemAsync(new Order("session", "ann", 7), Of("ann"));
            using var other = NewClient(endpoint, key);
            var read = await other.GetContainer(database.Id, "items").ReadItemAsync<Order>(
                "session", Of("ann"), new ItemRequestOptions { SessionToken = written.Headers.Session });
            Expect.Equal(7.0, read.Resource.Total, "total");
        });
        await report.CheckAsync("unique-keys", "of a second item are refused within its partition key", async () =>
        {
            var unique = await NewContainerAsync(database, "unique", properties =>
            {
                var policy = new UniqueKey();
                policy.Paths.Add("/total");
                properties.UniqueKeyPolicy.UniqueKeys.Add(policy);
            });
            await unique.CreateItemAsync(new Order("1", "ann", 5), Of("ann"));
            await unique.CreateItemAsync(new Order("2", "bob", 5), Of("bob"));
            var error = await Expect.RefusedAsync<CosmosException>(
                () => unique.CreateItemAsync(new Order("3", "ann", 5), Of("ann")), "a second one");
            Expect.Equal(HttpStatusCode.Conflict, error.StatusCode, "status");
        });
        await report.CheckAsync("items", "a missing container says so", async () =>
        {
            var error = await Expect.RefusedAsync<CosmosException>(
                () => database.GetContainer("none").CreateItemAsync(new Order("a", "ann", 1), Of("ann")), "no container");
            Expect.Equal(HttpStatusCode.NotFound, error.StatusCode, "status");
        });
    }

    private static async Task TimeToLiveAsync(Report report, Database database)
    {
        await report.CheckAsync("ttl", "items expire on the container's default and on their own", async () =>
        {
            var container = await NewContainerAsync(database, "ttl", properties => properties.DefaultTimeToLive = 4);
            await container.CreateItemAsync(new Order("default", "ann", 1), Of("ann"));
            await container.CreateItemAsync(new Order("own", "ann", 1, Ttl: 2), Of("ann"));
            await container.CreateItemAsync(new Order("never", "ann", 1, Ttl: -1), Of("ann"));
            await container.CreateItemAsync(new Order("long", "ann", 1, Ttl: 1000), Of("ann"));
            async Task<string> VisibleAsync() => string.Join(",",
                await AllAsync(container.GetItemQueryIterator<string>("SELECT VALUE c.id FROM c ORDER BY c.id")));
            Expect.Equal("default,long,never,own", await VisibleAsync(), "at first");
            await Expect.SoonAsync(async () => await VisibleAsync() == "default,long,never", "own is gone");
            await Expect.SoonAsync(async () => await VisibleAsync() == "long,never", "default is gone");
            var gone = await Expect.RefusedAsync<CosmosException>(() => container.ReadItemAsync<Order>("own", Of("ann")), "reading it");
            Expect.Equal(HttpStatusCode.NotFound, gone.StatusCode, "status");
            var again = await container.CreateItemAsync(new Order("own", "ann", 2), Of("ann"));
            Expect.Equal(HttpStatusCode.Created, again.StatusCode, "the id is free");
        });
        await report.CheckAsync("ttl", "an item's ttl that isn't valid is refused", async () =>
        {
            var container = database.GetContainer("ttl");
            foreach (var ttl in new[] { 0, -2 })
            {
                var error = await Expect.RefusedAsync<CosmosException>(
                    () => container.CreateItemAsync(new Order($"ttl{ttl}", "ann", 1, Ttl: ttl), Of("ann")), $"ttl {ttl}");
                Expect.Equal(HttpStatusCode.BadRequest, error.StatusCode, "status");
            }
        });
        await report.CheckAsync("ttl", "switching it on hides what is overdue", async () =>
        {
            var container = await NewContainerAsync(database, "ttl-later");
            await container.CreateItemAsync(new Order("old", "ann", 1), Of("ann"));
            await Task.Delay(2100);
            ContainerProperties properties = await container.ReadContainerAsync();
            properties.DefaultTimeToLive = 1;
            await container.ReplaceContainerAsync(properties);
            await Expect.SoonAsync(async () =>
                (await AllAsync(container.GetItemQueryIterator<int>("SELECT VALUE COUNT(1) FROM c"))).Single() == 0, "none is left");
        });
    }

    private static async Task QueriesAsync(Report report, Database database)
    {
        var container = await NewContainerAsync(database, "queries", throughput: 12_000);
        for (var n = 0; n < 30; n += 1)
        {
            string[] tags = n % 2 == 0 ? ["even", $"t{n % 3}"] : ["odd"];
            await container.CreateItemAsync(new Order($"o{n:00}", $"customer{n % 5}", n, tags), Of($"customer{n % 5}"));
        }
        async Task<List<T>> QueryAsync<T>(string sql, QueryRequestOptions? options = null) =>
            await AllAsync(container.GetItemQueryIterator<T>(sql, requestOptions: options));

        await report.CheckAsync("queries", "of one partition key find its items only", async () =>
        {
            var options = new QueryRequestOptions { PartitionKey = Of("customer1") };
            Expect.Equal(6, (await QueryAsync<Order>("SELECT * FROM c", options)).Count, "count");
        });
        await report.CheckAsync("queries", "over all partitions filter, order and project", async () =>
        {
            Expect.Same(["o29", "o28", "o27", "o26"],
                await QueryAsync<string>("SELECT VALUE c.id FROM c WHERE c.total > 25 ORDER BY c.total DESC"), "ordered");
            Expect.Equal(30, (await QueryAsync<Order>("SELECT * FROM c")).Count, "all");
            Expect.Same(["o03"], (await QueryAsync<JObject>("SELECT c.id AS name FROM c WHERE c.total = 3"))
                .Select(row => (string)row["name"]!), "projected");
        });
        await report.CheckAsync("queries", "of some partition keys find the items of these, in order and page by page", async () =>
        {
            const string some = "c.customer IN ('customer1', 'customer3', 'nobody')";
            foreach (var filter in new[] { some, "c.customer = 'customer3' OR c.customer = 'customer1'" })
            {
                string[] wanted = ["o01", "o03", "o06", "o08", "o11", "o13", "o16", "o18", "o21", "o23", "o26", "o28"];
                var paged = new QueryRequestOptions { MaxItemCount = 5 };
                Expect.Same(wanted, (await QueryAsync<string>($"SELECT VALUE c.id FROM c WHERE {filter}", paged)).Order(), filter);
                Expect.Same(wanted, await QueryAsync<string>($"SELECT VALUE c.id FROM c WHERE {filter} ORDER BY c.id", paged), "in order");
                Expect.Equal(12, (await QueryAsync<int>($"SELECT VALUE COUNT(1) FROM c WHERE {filter}")).Single(), "count");
            }
            Expect.Equal(0, (await QueryAsync<string>("SELECT VALUE c.id FROM c WHERE ARRAY_CONTAINS([], c.customer)")).Count, "none");
        });
        await report.CheckAsync("queries", "take parameters", async () =>
        {
            var query = new QueryDefinition("SELECT VALUE c.id FROM c WHERE c.total >= @low AND ARRAY_CONTAINS(c.tags, @tag) ORDER BY c.id")
                .WithParameter("@low", 26).WithParameter("@tag", "even");
            Expect.Same(["o26", "o28"], await AllAsync(container.GetItemQueryIterator<string>(query)), "found");
        });
        await report.CheckAsync("queries", "count what is distinct, and know where there is no average", async () =>
        {
            Expect.Equal(5, (await QueryAsync<int>("SELECT VALUE COUNT(1) FROM (SELECT DISTINCT c.customer FROM c)")).Single(), "value");
            var named = await QueryAsync<JObject>("SELECT COUNT(1) AS n FROM (SELECT DISTINCT VALUE c.customer FROM c)");
            Expect.Equal(5, (int)named.Single()["n"]!, "named");
            Expect.Equal(0, (await QueryAsync<JToken>("SELECT VALUE AVG(c.id) FROM c")).Count, "average of texts");
            Expect.Equal(3.0, (await QueryAsync<double>("SELECT VALUE AVG(c.total) FROM c WHERE c.total = 3")).Single(), "average in one range");
            Expect.Equal(0.0, (await QueryAsync<double>("SELECT VALUE SUM(c.nothing) FROM c")).Single(), "sum of nothing");
        });
        async Task<List<string>> PagedAsync(string sql)
        {
            var found = new List<string>();
            string? token = null;
            do
            {
                using var pages = container.GetItemQueryIterator<string>(sql, token, new QueryRequestOptions { MaxItemCount = 4 });
                var page = await pages.ReadNextAsync();
                found.AddRange(page);
                token = page.ContinuationToken;
            } while (token is not null);
            return found;
        }
        await report.CheckAsync("queries", "ordered by two keys go on from a continuation token", async () =>
        {
            foreach (var order in new[] { "c.tags[0], c.customer DESC", "c.tags[0] DESC, c.customer", "c.customer DESC, c.tags[0] DESC" })
            {
                var found = await PagedAsync($"SELECT VALUE c.id FROM c ORDER BY {order}");
                Expect.Equal(30, found.Distinct().Count(), $"items by {order}");
                Expect.Equal(30, found.Count, $"rows by {order}");
            }
        });
        await report.CheckAsync("queries", "ordered with a join go on from a continuation token, also inside an item", async () =>
        {
            foreach (var order in new[] { "c.customer", "c.customer DESC", "c.total DESC", "t", "t DESC, c.total" })
            {
                var found = await PagedAsync($"SELECT VALUE CONCAT(c.id, t) FROM c JOIN t IN c.tags ORDER BY {order}");
                Expect.Equal(45, found.Distinct().Count(), $"rows by {order}");
                Expect.Equal(45, found.Count, $"rows by {order}, each once");
            }
        });
        await report.CheckAsync("queries", "give aggregates", async () =>
        {
            Expect.Equal(30, (await QueryAsync<int>("SELECT VALUE COUNT(1) FROM c")).Single(), "count");
            Expect.Equal(435.0, (await QueryAsync<double>("SELECT VALUE SUM(c.total) FROM c")).Single(), "sum");
            Expect.Equal(14.5, (await QueryAsync<double>("SELECT VALUE AVG(c.total) FROM c")).Single(), "average");
            Expect.Equal(29.0, (await QueryAsync<double>("SELECT VALUE MAX(c.total) FROM c")).Single(), "maximum");
            Expect.Equal(0.0, (await QueryAsync<double>("SELECT VALUE MIN(c.total) FROM c")).Single(), "minimum");
            var several = (await QueryAsync<JObject>("SELECT COUNT(1) AS n, MAX(c.total) AS top FROM c")).Single();
            Expect.Equal(30, (int)several["n"]!, "n");
            Expect.Equal(29, (int)several["top"]!, "top");
        });
        await report.CheckAsync("queries", "group", async () =>
        {
            var groups = await QueryAsync<JObject>("SELECT c.customer, COUNT(1) AS n, SUM(c.total) AS s FROM c GROUP BY c.customer");
            Expect.Same(["customer0:6:75", "customer1:6:81", "customer2:6:87", "customer3:6:93", "customer4:6:99"],
                groups.Select(row => $"{row["customer"]}:{row["n"]}:{row["s"]}").Order(), "groups");
            var ordered = await QueryAsync<JObject>(
                "SELECT c.customer, AVG(c.total) AS mean FROM c GROUP BY c.customer ORDER BY c.customer DESC OFFSET 1 LIMIT 3");
            Expect.Same(["customer3:15.5", "customer2:14.5", "customer1:13.5"],
                ordered.Select(row => $"{row["customer"]}:{row["mean"]}"), "groups in order");
            var tags = await QueryAsync<int>("SELECT VALUE COUNT(1) FROM c JOIN t IN c.tags GROUP BY t ORDER BY t");
            Expect.Equal(45, tags.Sum(), "values of groups in order");
        });
        await report.CheckAsync("queries", "give distinct values", async () =>
        {
            Expect.Equal(5, (await QueryAsync<string>("SELECT DISTINCT VALUE c.customer FROM c")).Count, "unordered");
            Expect.Same(["customer0", "customer1", "customer2", "customer3", "customer4"],
                await QueryAsync<string>("SELECT DISTINCT VALUE c.customer FROM c ORDER BY c.customer"), "ordered");
            Expect.Equal(29.0, (await QueryAsync<double>("SELECT DISTINCT VALUE MAX(c.total) FROM c")).Single(), "maximum");
        });
        await report.CheckAsync("queries", "take TOP, OFFSET and LIMIT", async () =>
        {
            Expect.Same(["o00", "o01"], await QueryAsync<string>("SELECT TOP 2 VALUE c.id FROM c ORDER BY c.id"), "top");
            Expect.Same(["o05", "o06"], await QueryAsync<string>("SELECT VALUE c.id FROM c ORDER BY c.id OFFSET 5 LIMIT 2"), "offset");
        });
        await report.CheckAsync("queries", "join arrays and take subqueries", async () =>
        {
            Expect.Equal(45, (await QueryAsync<string>("SELECT VALUE t FROM c JOIN t IN c.tags")).Count, "joined");
            Expect.Equal(5, (await QueryAsync<string>(
                "SELECT VALUE c.id FROM c WHERE EXISTS(SELECT VALUE t FROM t IN c.tags WHERE t = 't1')")).Count, "exists");
        });
        await report.CheckAsync("queries", "are paged, and go on from a continuation token in another client", async () =>
        {
            foreach (var sql in new[] { "SELECT VALUE c.id FROM c", "SELECT VALUE c.id FROM c ORDER BY c.total DESC", "SELECT VALUE c.id FROM c ORDER BY c.customer" })
            {
                var found = new List<string>();
                string? token = null;
                var pages = 0;
                do
                {
                    using var iterator = container.GetItemQueryIterator<string>(sql, token, new QueryRequestOptions { MaxItemCount = 7 });
                    FeedResponse<string> page = await iterator.ReadNextAsync();
                    Expect.True(page.Count <= 7, "a page is no longer than asked for");
                    found.AddRange(page);
                    token = page.ContinuationToken;
                    pages += 1;
                } while (token is not null && pages < 100);
                Expect.Equal(30, found.Distinct().Count(), $"distinct of {sql}");
                Expect.Equal(30, found.Count, sql);
                if (sql.EndsWith("DESC", StringComparison.Ordinal)) Expect.Same(found.OrderDescending(), found, sql);
            }
        });
        await report.CheckAsync("queries", "work from LINQ", async () =>
        {
            var linq = container.GetItemLinqQueryable<Order>(
                linqSerializerOptions: new CosmosLinqSerializerOptions { PropertyNamingPolicy = CosmosPropertyNamingPolicy.CamelCase });
            Expect.Equal(4, (await AllAsync(linq.Where(order => order.Total > 25).ToFeedIterator())).Count, "where");
            Expect.Equal(30, (await linq.CountAsync()).Resource, "count");
            Expect.Equal(5, (await AllAsync(linq.Skip(25).ToFeedIterator())).Count, "skip");
            Expect.Equal(5, (await AllAsync(linq.OrderBy(order => order.Total).Skip(25).ToFeedIterator())).Count, "skip in order");
        });
        await report.CheckAsync("queries", "run within a feed range, all of which hold everything once", async () =>
        {
            var found = new List<string>();
            foreach (var range in await container.GetFeedRangesAsync())
                found.AddRange(await AllAsync(container.GetItemQueryIterator<string>(range, new QueryDefinition("SELECT VALUE c.id FROM c"))));
            Expect.Equal(30, found.Count, "all");
            Expect.Equal(30, found.Distinct().Count(), "each once");
        });
        await report.CheckAsync("search", "the nearest vectors and the best texts are found", async () =>
        {
            var places = await NewContainerAsync(database, "places", throughput: 12_000);
            (string Id, double[] Place, string Text)[] items =
                [("far", [9, 9], "a long walk to the sea"), ("near", [1, 0], "the sea"), ("middle", [3, 0], "hills")];
            foreach (var (id, place, text) in items)
                await places.CreateItemAsync(JObject.FromObject(new { id, customer = id, place, text }), Of(id));
            async Task<List<string>> FindAsync(string sql) => await AllAsync(places.GetItemQueryIterator<string>(sql));
            Expect.Same(["near", "middle"], await FindAsync(
                "SELECT TOP 2 VALUE c.id FROM c ORDER BY VectorDistance(c.place, [0, 0], true, {distanceFunction: 'euclidean'})"), "nearest");
            Expect.Same(["far", "near"], (await FindAsync(
                "SELECT VALUE c.id FROM c WHERE FullTextContains(c.text, 'sea')")).Order(), "with the word");
            var best = await AllAsync(places.GetItemQueryIterator<JObject>(
                "SELECT TOP 2 c.id FROM c ORDER BY RANK FullTextScore(c.text, 'sea')"));
            Expect.Same(["near", "far"], best.Select(row => (string)row["id"]!), "ranked by its words");
            var fused = await AllAsync(places.GetItemQueryIterator<JObject>(
                "SELECT TOP 2 c.id FROM c ORDER BY RANK RRF(FullTextScore(c.text, 'hills'), VectorDistance(c.place, [0, 1]))"));
            Expect.Same(["far", "middle"], fused.Select(row => (string)row["id"]!).Order(), "ranked by both");
        });
        await report.CheckAsync("queries", "that are no queries are refused", async () =>
        {
            foreach (var sql in new[] { "SELEC * FROM c", "SELECT * FROM c WHERE", "SELECT NOSUCH(c) FROM c" })
            {
                var error = await Expect.RefusedAsync<CosmosException>(() => QueryAsync<JObject>(sql), sql);
                Expect.Equal(HttpStatusCode.BadRequest, error.StatusCode, sql);
            }
        });
        await report.CheckAsync("queries", "items are streamed without a query", async () =>
        {
            var names = new List<string>();
            using FeedIterator pages = container.GetItemQueryStreamIterator(requestOptions: new QueryRequestOptions { MaxItemCount = 10 });
            while (pages.HasMoreResults)
            {
                using ResponseMessage page = await pages.ReadNextAsync();
                page.EnsureSuccessStatusCode();
                using var reader = new StreamReader(page.Content);
                var body = JObject.Parse(await reader.ReadToEndAsync());
                names.AddRange(body["Documents"]!.Select(document => (string)document["id"]!));
            }
            Expect.Equal(30, names.Distinct().Count(), "all");
        });
    }

    private static async Task ThroughputAsync(Report report, CosmosClient client, Database database)
    {
        await report.CheckAsync("throughput", "of a container is read and replaced", async () =>
        {
            var container = await NewContainerAsync(database, "throughput", throughput: 500);
            Expect.Equal(500, await container.ReadThroughputAsync(), "read");
            ThroughputResponse replaced = await container.ReplaceThroughputAsync(700);
            Expect.Equal(700, replaced.Resource.Throughput, "replaced");
            Expect.Equal(700, await container.ReadThroughputAsync(), "read again");
        });
        await report.CheckAsync("throughput", "scales by itself when asked to", async () =>
        {
            var properties = new ContainerProperties("autoscale", "/customer");
            Container container = await database.CreateContainerAsync(properties, ThroughputProperties.CreateAutoscaleThroughput(4000));
            ThroughputResponse read = await container.ReadThroughputAsync(new RequestOptions());
            Expect.Equal(4000, read.Resource.AutoscaleMaxThroughput, "maximum");
            read = await container.ReplaceThroughputAsync(ThroughputProperties.CreateAutoscaleThroughput(5000));
            Expect.Equal(5000, read.Resource.AutoscaleMaxThroughput, "replaced");
        });
        await report.CheckAsync("throughput", "of a database is read", async () =>
        {
            Database shared = (await client.CreateDatabaseAsync($"net3-{Guid.NewGuid():N}", 600)).Database;
            Expect.Equal(600, await shared.ReadThroughputAsync(), "read");
            await shared.DeleteAsync();
        });
    }

    private static async Task BatchesAsync(Report report, CosmosClient client, string endpoint, string key, Database database)
    {
        var container = await NewContainerAsync(database, "batches");
        await report.CheckAsync("batch", "a transactional batch does all", async () =>
        {
            await container.UpsertItemAsync(new Order("old", "ann", 1), Of("ann"));
            using TransactionalBatchResponse response = await container.CreateTransactionalBatch(Of("ann"))
                .CreateItem(new Order("new", "ann", 2))
                .ReadItem("old")
                .UpsertItem(new Order("third", "ann", 3))
                .ReplaceItem("old", new Order("old", "ann", 4))
                .PatchItem("third", [PatchOperation.Increment("/total", 10)])
                .DeleteItem("new")
                .ExecuteAsync();
            Expect.True(response.IsSuccessStatusCode, $"success, not {response.StatusCode} {response.ErrorMessage}");
            Expect.Same([201, 200, 201, 200, 200, 204], response.Select(result => (int)result.StatusCode), "statuses");
            Expect.Equal(1.0, response.GetOperationResultAtIndex<Order>(1).Resource.Total, "read in it");
            Expect.Equal(4.0, (await container.ReadItemAsync<Order>("old", Of("ann"))).Resource.Total, "replaced");
        });
        await report.CheckAsync("batch", "a transactional batch does all or nothing", async () =>
        {
            using TransactionalBatchResponse response = await container.CreateTransactionalBatch(Of("ann"))
                .CreateItem(new Order("undone", "ann", 2))
                .ReplaceItem("missing", new Order("missing", "ann", 4))
                .ExecuteAsync();
            Expect.True(!response.IsSuccessStatusCode, "no success");
            Expect.Equal(HttpStatusCode.NotFound, response.StatusCode, "status");
            Expect.Same([424, 404], response.Select(result => (int)result.StatusCode), "statuses");
            var gone = await Expect.RefusedAsync<CosmosException>(() => container.ReadItemAsync<Order>("undone", Of("ann")), "reading it");
            Expect.Equal(HttpStatusCode.NotFound, gone.StatusCode, "rolled back");
        });
        await report.CheckAsync("bulk", "executes hundreds of operations at once", async () =>
        {
            using var bulk = NewClient(endpoint, key, bulk: true);
            var target = bulk.GetContainer(database.Id, "batches");
            var writes = Enumerable.Range(0, 300)
                .Select(n => target.CreateItemAsync(new Order($"bulk{n}", $"c{n % 7}", n), Of($"c{n % 7}")));
            ItemResponse<Order>[] responses = await Task.WhenAll(writes);
            Expect.True(responses.All(response => response.StatusCode == HttpStatusCode.Created), "all created");
            var reads = Enumerable.Range(0, 300).Select(n => target.ReadItemAsync<Order>($"bulk{n}", Of($"c{n % 7}")));
            Expect.Equal(44_850.0, (await Task.WhenAll(reads)).Sum(response => response.Resource.Total), "sum");
            var error = await Expect.RefusedAsync<CosmosException>(
                () => target.CreateItemAsync(new Order("bulk1", "c1", 1), Of("c1")), "a duplicate");
            Expect.Equal(HttpStatusCode.Conflict, error.StatusCode, "duplicate");
        });
        await report.CheckAsync("bulk", "reads more than one answer holds, and a batch says that it can't", async () =>
        {
            var text = new string('x', 1_500_000);
            foreach (var n in Enumerable.Range(0, 5)) await container.CreateItemAsync(new Order($"large{n}", "large", n, [text]), Of("large"));
            using var bulk = NewClient(endpoint, key, bulk: true);
            var target = bulk.GetContainer(database.Id, "batches");
            var reads = Enumerable.Range(0, 5).Select(n => target.ReadItemAsync<Order>($"large{n}", Of("large")));
            Expect.Equal(10.0, (await Task.WhenAll(reads)).Sum(response => response.Resource.Total), "sum");
            var batch = container.CreateTransactionalBatch(Of("large"));
            foreach (var n in Enumerable.Range(0, 5)) batch.ReadItem($"large{n}");
            using TransactionalBatchResponse refused = await batch.ExecuteAsync();
            Expect.Equal(HttpStatusCode.RequestEntityTooLarge, refused.StatusCode, "status");
        });
        await report.CheckAsync("partition-delete", "all items of a partition key are deleted", async () =>
        {
            await container.UpsertItemAsync(new Order("d1", "dora", 1), Of("dora"));
            await container.UpsertItemAsync(new Order("d2", "dora", 1), Of("dora"));
            await container.UpsertItemAsync(new Order("d1", "emil", 1), Of("emil"));
            // The call is internal to the client's general release, so it is made through the container's stream API where there is one.
            var method = container.GetType().GetMethod("DeleteAllItemsByPartitionKeyStreamAsync",
                System.Reflection.BindingFlags.Instance | System.Reflection.BindingFlags.NonPublic | System.Reflection.BindingFlags.Public,
                [typeof(PartitionKey), typeof(RequestOptions), typeof(CancellationToken)]);
            Expect.True(method is not null, "the client has the call");
            using ResponseMessage response = await (Task<ResponseMessage>)method!.Invoke(container, [Of("dora"), null, CancellationToken.None])!;
            Expect.Equal(HttpStatusCode.OK, response.StatusCode, "status");
            await Expect.SoonAsync(async () => (await AllAsync(container.GetItemQueryIterator<string>(
                "SELECT VALUE c.id FROM c WHERE c.customer = 'dora'"))).Count == 0, "all gone");
            Expect.Equal(1.0, (await container.ReadItemAsync<Order>("d1", Of("emil"))).Resource.Total, "others stay");
        });
    }

    private static async Task HierarchyAsync(Report report, Database database)
    {
        await report.CheckAsync("hierarchy", "keys of several levels find items, wholly and by prefix", async () =>
        {
            Container container = await database.CreateContainerAsync(
                new ContainerProperties("hierarchy", partitionKeyPaths: ["/tenant", "/user", "/session"]));
            PartitionKey Key(params string[] parts)
            {
                var builder = new PartitionKeyBuilder();
                foreach (var part in parts) builder.Add(part);
                return builder.Build();
            }
            foreach (var (tenant, user, n) in new[] { ("t1", "u1", 1), ("t1", "u2", 2), ("t2", "u1", 3) })
                await container.CreateItemAsync(
                    JObject.FromObject(new { id = $"i{n}", tenant, user, session = $"s{n}" }), Key(tenant, user, $"s{n}"));
            Expect.Equal("i2", (string)(await container.ReadItemAsync<JObject>("i2", Key("t1", "u2", "s2"))).Resource["id"]!, "read");
            async Task<IEnumerable<string>> WithinAsync(PartitionKey prefix) => (await AllAsync(container.GetItemQueryIterator<string>(
                "SELECT VALUE c.id FROM c", requestOptions: new QueryRequestOptions { PartitionKey = prefix }))).Order();
            Expect.Same(["i1", "i2"], await WithinAsync(Key("t1")), "one level");
            Expect.Same(["i1"], await WithinAsync(Key("t1", "u1")), "two levels");
            Expect.Same(["i3"], await WithinAsync(Key("t2", "u1", "s3")), "three levels");
        });
    }

    private static async Task ChangeFeedAsync(Report report, Database database)
    {
        var container = await NewContainerAsync(database, "feed", throughput: 12_000);

        async Task<(List<Order> Found, string Token)> DrainAsync(ChangeFeedStartFrom from)
        {
            var found = new List<Order>();
            using FeedIterator<Order> pages = container.GetChangeFeedIterator<Order>(
                from, ChangeFeedMode.LatestVersion, new ChangeFeedRequestOptions { PageSizeHint = 5 });
            while (true)
            {
                FeedResponse<Order> page = await pages.ReadNextAsync();
                if (page.StatusCode == HttpStatusCode.NotModified) return (found, page.ContinuationToken);
                found.AddRange(page);
            }
        }

        await report.CheckAsync("feed", "is read from the beginning, and goes on from a token", async () =>
        {
            for (var n = 0; n < 12; n += 1)
                await container.CreateItemAsync(new Order($"f{n}", $"customer{n % 4}", n), Of($"customer{n % 4}"));
            await container.UpsertItemAsync(new Order("f0", "customer0", 100), Of("customer0"));
            var (first, token) = await DrainAsync(ChangeFeedStartFrom.Beginning());
            Expect.Equal(12, first.Count, "each item once");
            Expect.Equal(100.0, first.Single(order => order.Id == "f0").Total, "in its latest version");
            await container.CreateItemAsync(new Order("later", "customer1", 1), Of("customer1"));
            var (second, _) = await DrainAsync(ChangeFeedStartFrom.ContinuationToken(token));
            Expect.Same(["later"], second.Select(order => order.Id), "what is new");
        });
        await report.CheckAsync("feed", "is read from now, for one key and for a range", async () =>
        {
            var (_, now) = await DrainAsync(ChangeFeedStartFrom.Now());
            await container.UpsertItemAsync(new Order("now", "customer2", 1), Of("customer2"));
            Expect.Same(["now"], (await DrainAsync(ChangeFeedStartFrom.ContinuationToken(now))).Found.Select(order => order.Id), "from now");
            var (ofOne, _) = await DrainAsync(ChangeFeedStartFrom.Beginning(FeedRange.FromPartitionKey(Of("customer3"))));
            Expect.True(ofOne.Count == 3 && ofOne.All(order => order.Customer == "customer3"), "of one key");
            var total = 0;
            foreach (var range in await container.GetFeedRangesAsync())
                total += (await DrainAsync(ChangeFeedStartFrom.Beginning(range))).Found.Count;
            Expect.Equal((await DrainAsync(ChangeFeedStartFrom.Beginning())).Found.Count, total, "of all ranges");
        });
        await report.CheckAsync("feed", "a processor handles changes and keeps its leases in a container", async () =>
        {
            Container leases = await database.CreateContainerAsync("leases", "/id");
            var handled = new System.Collections.Concurrent.ConcurrentBag<string>();
            ChangeFeedProcessor processor = container.GetChangeFeedProcessorBuilder<Order>("shop", (_, changes, _) =>
                {
                    foreach (var change in changes) handled.Add(change.Id);
                    return Task.CompletedTask;
                })
                .WithInstanceName("one").WithLeaseContainer(leases)
                .WithStartTime(DateTime.MinValue.ToUniversalTime())
                .WithPollInterval(TimeSpan.FromMilliseconds(100)).Build();
            await processor.StartAsync();
            await container.UpsertItemAsync(new Order("processed", "customer1", 1), Of("customer1"));
            await Expect.SoonAsync(() => Task.FromResult(handled.Contains("processed") && handled.Contains("f5")), "all changes handled", 30);
            await processor.StopAsync();
            Expect.True((await AllAsync(leases.GetItemQueryIterator<JObject>("SELECT * FROM c"))).Count > 0, "leases");
        });
    }

    /// <summary>In place of <c>DefaultAzureCredential</c>.</summary>
    private sealed class GivenToken(string token) : TokenCredential
    {
        private readonly AccessToken _token = new(token, DateTimeOffset.UtcNow.AddMinutes(50));
        public override AccessToken GetToken(TokenRequestContext context, CancellationToken cancel) => _token;
        public override ValueTask<AccessToken> GetTokenAsync(TokenRequestContext context, CancellationToken cancel) =>
            ValueTask.FromResult(_token);
    }

    private static async Task IdentitiesAsync(Report report, string endpoint, Database database, TokenCredential credential)
    {
        await report.CheckAsync("identities", "a token in place of a key reads and writes items, and makes no containers", async () =>
        {
            await NewContainerAsync(database, "identified");
            using var client = new CosmosClient(
                endpoint, credential, new CosmosClientOptions { ConnectionMode = Mode });
            var container = client.GetContainer(database.Id, "identified");
            Expect.Equal("identified", (await container.ReadContainerAsync()).Resource.Id, "the container");
            await container.CreateItemAsync(new Order("a", "ann", 1), Of("ann"));
            await container.UpsertItemAsync(new Order("a", "ann", 2), Of("ann"));
            Expect.Equal(2.0, (await container.ReadItemAsync<Order>("a", Of("ann"))).Resource.Total, "total");
            var query = container.GetItemQueryIterator<double>("SELECT VALUE SUM(c.total) FROM c");
            Expect.Same([2.0], await query.ReadNextAsync(), "the sum");
            await container.DeleteItemAsync<Order>("a", Of("ann"));
            var refused = await Expect.RefusedAsync<CosmosException>(
                () => client.GetDatabase(database.Id).CreateContainerAsync("mine", "/customer"), "a new container");
            Expect.Equal((HttpStatusCode.Forbidden, 5300), (refused.StatusCode, refused.SubStatusCode), "status");
        });
    }

    private static async Task UsersAsync(Report report, string endpoint, Database database)
    {
        await report.CheckAsync("users", "permissions open one container for reading only", async () =>
        {
            var container = await NewContainerAsync(database, "permitted");
            await container.CreateItemAsync(new Order("a", "ann", 1), Of("ann"));
            User user = await database.CreateUserAsync("reader");
            Expect.Equal("reader", (await user.ReadAsync()).Resource.Id, "the user");
            PermissionResponse created = await user.CreatePermissionAsync(
                new PermissionProperties("read", PermissionMode.Read, container));
            Expect.True(created.Resource.Token is { Length: > 0 }, "a token");
            using var reader = NewClient(endpoint, created.Resource.Token);
            var mine = reader.GetContainer(database.Id, "permitted");
            Expect.Equal(1.0, (await mine.ReadItemAsync<Order>("a", Of("ann"))).Resource.Total, "read");
            var error = await Expect.RefusedAsync<CosmosException>(
                () => mine.CreateItemAsync(new Order("b", "ann", 1), Of("ann")), "a write");
            Expect.Equal(HttpStatusCode.Forbidden, error.StatusCode, "status");
            Expect.Equal(1, (await AllAsync(user.GetPermissionQueryIterator<PermissionProperties>())).Count, "listed");
            await user.DeleteAsync();
        });
    }

    private static async Task ScriptsAsync(Report report, Database database)
    {
        await report.CheckAsync("scripts", "stored procedures, triggers and functions run", async () =>
        {
            var container = await NewContainerAsync(database, "scripts");
            Scripts scripts = container.Scripts;
            await scripts.CreateStoredProcedureAsync(new StoredProcedureProperties("add", """
                function (id, total) {
                    var collection = getContext().getCollection();
                    var order = { id: id, customer: "ann", total: total };
                    console.log("adding " + id);
                    collection.createDocument(collection.getSelfLink(), order, function (error, created) {
                        if (error) throw error;
                        getContext().getResponse().setBody(created);
                    });
                }
                """));
            var added = await scripts.ExecuteStoredProcedureAsync<Order>(
                "add", Of("ann"), ["a", 2.5], new StoredProcedureRequestOptions { EnableScriptLogging = true });
            Expect.Equal(2.5, added.Resource.Total, "the answer");
            Expect.Equal("adding a", added.ScriptLog, "the log");
            Expect.True(added.RequestCharge > 0, "a charge");
            var failed = await Expect.RefusedAsync<CosmosException>(
                () => scripts.ExecuteStoredProcedureAsync<Order>("add", Of("ann"), ["a", 1]), "an id that is taken");
            Expect.Equal(HttpStatusCode.BadRequest, failed.StatusCode, "status");

            await scripts.CreateTriggerAsync(new TriggerProperties
            {
                Id = "double",
                Body = """
                    function () {
                        var request = getContext().getRequest();
                        var order = request.getBody();
                        order.total = 2 * order.total;
                        request.setBody(order);
                    }
                    """,
                TriggerType = TriggerType.Pre,
                TriggerOperation = TriggerOperation.Create,
            });
            var doubled = await container.CreateItemAsync(
                new Order("b", "ann", 4), Of("ann"), new ItemRequestOptions { PreTriggers = ["double"] });
            Expect.Equal(8.0, doubled.Resource.Total, "what the trigger made of it");

            await scripts.CreateUserDefinedFunctionAsync(new UserDefinedFunctionProperties
                { Id = "tax", Body = "function (total) { return total / 2; }" });
            var query = container.GetItemQueryIterator<double>(
                "SELECT VALUE udf.tax(c.total) FROM c WHERE udf.tax(c.total) > 2",
                requestOptions: new QueryRequestOptions { PartitionKey = Of("ann") });
            Expect.Same([4.0], await AllAsync(query), "what a query calls");
            Expect.Equal(1, (await AllAsync(scripts.GetStoredProcedureQueryIterator<StoredProcedureProperties>())).Count, "listed");
            await scripts.DeleteStoredProcedureAsync("add");
            await scripts.DeleteTriggerAsync("double");
            await scripts.DeleteUserDefinedFunctionAsync("tax");
        });
    }
}
