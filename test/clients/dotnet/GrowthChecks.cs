using System.Collections.Concurrent;
using System.Net;
using Microsoft.Azure.Cosmos;

namespace Epitaph.Clients;

/// <summary>What is under way while the throughput of a container grows and its ranges split, and what many operations at once are told.</summary>
internal static class GrowthChecks
{
    private static PartitionKey Of(string customer) => new(customer);

    public static async Task RunAsync(Report report, Func<bool, int, CosmosClient> newClient, Database database)
    {
        await report.CheckAsync("growth", "processors of two hosts miss no change, and an estimator counts what they have left", async () =>
        {
            Container container = await database.CreateContainerAsync("growing feed", "/customer", 6_000);
            Container leases = await database.CreateContainerAsync("growing leases", "/id");
            var handled = new ConcurrentQueue<string>();
            ChangeFeedProcessor Host(string name) => container.GetChangeFeedProcessorBuilder<Order>("grow", (_, changes, _) =>
                {
                    foreach (var change in changes) handled.Enqueue(change.Id);
                    return Task.CompletedTask;
                })
                .WithInstanceName(name).WithLeaseContainer(leases).WithMaxItems(10)
                .WithStartTime(DateTime.MinValue.ToUniversalTime()).WithPollInterval(TimeSpan.FromMilliseconds(100))
                .WithLeaseConfiguration(TimeSpan.FromSeconds(1), TimeSpan.FromSeconds(4), TimeSpan.FromSeconds(1)).Build();
            async Task WriteAsync(int from, int count)
            {
                for (var n = from; n < from + count; n += 1)
                    await container.CreateItemAsync(new Order($"g{n}", $"customer{n % 17}", n), Of($"customer{n % 17}"));
            }
            var first = Host("one");
            await first.StartAsync();
            await WriteAsync(0, 60);
            await Task.WhenAll(WriteAsync(60, 60), container.ReplaceThroughputAsync(18_000));
            var second = Host("two");
            await second.StartAsync();
            await WriteAsync(120, 60);
            await Expect.SoonAsync(() => Task.FromResult(handled.Distinct().Count() == 180), "all are handled", 30);
            await first.StopAsync();
            await second.StopAsync();
            await WriteAsync(180, 20);
            for (var n = 0; n < 5; n += 1) await leases.UpsertItemAsync(new { id = "of no lease" });
            long left = 0;
            using var states = container.GetChangeFeedEstimator("grow", leases).GetCurrentStateIterator();
            while (states.HasMoreResults) left += (await states.ReadNextAsync()).Sum(state => state.EstimatedLag);
            Expect.Equal(20L, left, "what is left to handle");
        });
        await report.CheckAsync("growth", "a processor of all versions and deletes goes on over a split", async () =>
        {
            var properties = new ContainerProperties("growing versions", "/customer")
            {
                DefaultTimeToLive = -1,
                ChangeFeedPolicy = new ChangeFeedPolicy { FullFidelityRetention = TimeSpan.FromMinutes(10) },
            };
            Container container = await database.CreateContainerAsync(properties, 6_000);
            Container leases = await database.CreateContainerAsync("growing version leases", "/id");
            var handled = new ConcurrentQueue<string>();
            ChangeFeedProcessor processor = container.GetChangeFeedProcessorBuilderWithAllVersionsAndDeletes<Order>("versions", (_, changes, _) =>
                {
                    foreach (var change in changes)
                        handled.Enqueue($"{change.Metadata.OperationType} {change.Current?.Id ?? change.Metadata.Id} {change.Metadata.IsTimeToLiveExpired}");
                    return Task.CompletedTask;
                })
                .WithInstanceName("one").WithLeaseContainer(leases).WithPollInterval(TimeSpan.FromMilliseconds(100)).Build();
            await processor.StartAsync();
            await Expect.SoonAsync(async () =>
            {
                // It starts from now, whenever that is: what it has seen once, it is there for.
                await container.UpsertItemAsync(new Order("started", "ann", 1), Of("ann"));
                return !handled.IsEmpty;
            }, "the processor has started");
            await container.CreateItemAsync(new Order("a", "ann", 1), Of("ann"));
            await container.ReplaceThroughputAsync(18_000);
            await container.ReplaceItemAsync(new Order("a", "ann", 2), "a", Of("ann"));
            await container.DeleteItemAsync<Order>("a", Of("ann"));
            await container.CreateItemAsync(new Order("b", "bob", 1, Ttl: 1), Of("bob"));
            await Task.Delay(2100);
            // The next life records the end of the last, so that this does not wait for a purge.
            await container.CreateItemAsync(new Order("b", "bob", 2), Of("bob"));
            IEnumerable<string> Told(string id) => handled.Where(told => told.Contains($" {id} "));
            await Expect.SoonAsync(() => Task.FromResult(Told("b").Count() == 3 && Told("a").Count() == 3), "all is told");
            Expect.Same(["Create a False", "Replace a False", "Delete a False"], Told("a"), "of the first");
            Expect.Same(["Create b False", "Delete b True", "Create b False"], Told("b"), "of the one that expires");
            await processor.StopAsync();
        });
        await report.CheckAsync("growth", "queries that are being read go on over the first split, in order", async () =>
        {
            foreach (var (sql, wanted) in new[]
            {
                ("SELECT VALUE c.total FROM c ORDER BY c.total DESC", Enumerable.Range(0, 40).Reverse()),
                ("SELECT VALUE c.total FROM c ORDER BY c.total OFFSET 3 LIMIT 30", Enumerable.Range(3, 30)),
                ("SELECT DISTINCT VALUE c.total FROM c ORDER BY c.total", Enumerable.Range(0, 40)),
            })
            foreach (var learns in new[] { false, true })
            {
                Container container = await database.CreateContainerAsync($"growing {Guid.NewGuid():N}", "/customer", 6_000);
                for (var n = 0; n < 40; n += 1) await container.CreateItemAsync(new Order($"q{n}", $"customer{n % 17}", n), Of($"customer{n % 17}"));
                var found = new List<int>();
                using FeedIterator<int> pages = container.GetItemQueryIterator<int>(sql, requestOptions: new QueryRequestOptions { MaxItemCount = 8 });
                found.AddRange(await pages.ReadNextAsync());
                await container.ReplaceThroughputAsync(18_000);
                // By a read of an item the client learns of the split, and asks each range to go on.
                if (learns) await container.ReadItemAsync<Order>("q0", Of("customer0"));
                while (pages.HasMoreResults) found.AddRange(await pages.ReadNextAsync());
                Expect.Same(wanted, found, sql);
                Expect.True((await container.GetFeedRangesAsync()).Count > 1, "there are several ranges");
            }
        });
        await report.CheckAsync("growth", "a client that only queries learns of a split, and goes on from the tokens of one that knows it", async () =>
        {
            Container container = await database.CreateContainerAsync(new ContainerProperties("growing prefixes", ["/customer", "/id"]), 12_000);
            for (var n = 0; n < 40; n += 1) await container.CreateItemAsync(new Order($"p{n:00}", $"customer{n % 4}", n));
            using CosmosClient elsewhere = newClient(false, 0);
            Container other = elsewhere.GetContainer(database.Id, "growing prefixes");
            async Task<IReadOnlyList<int>> ReadAsync(string customer, params Container[] turns)
            {
                var found = new List<int>();
                string? token = null;
                do
                {
                    var options = new QueryRequestOptions { MaxItemCount = 4, PartitionKey = new PartitionKeyBuilder().Add(customer).Build() };
                    using FeedIterator<int> pages = turns[found.Count / 4 % turns.Length].GetItemQueryIterator<int>("SELECT VALUE c.total FROM c ORDER BY c.total", token, options);
                    FeedResponse<int> page = await pages.ReadNextAsync();
                    found.AddRange(page);
                    token = page.ContinuationToken;
                }
                while (token is not null && found.Count < 40);
                return found;
            }
            IEnumerable<int> Totals(int customer) => Enumerable.Range(0, 10).Select(n => 4 * n + customer);
            Expect.Same(Totals(0), await ReadAsync("customer0", other), "before the split");
            await container.ReplaceThroughputAsync(60_000);
            Expect.True((await container.GetFeedRangesAsync()).Count > 2, "it has split");
            for (var customer = 0; customer < 4; customer += 1)
            {
                Expect.Same(Totals(customer), await ReadAsync($"customer{customer}", other), "by the one that only queries");
                // In direct mode answers for a part of a range don't teach it which ranges there are.
                if (!Modes.IsDirect) Expect.Same(Totals(customer), await ReadAsync($"customer{customer}", container, other), "in turns");
            }
        });
        await report.CheckAsync("bulk", "tells each of a thousand operations what became of it", async () =>
        {
            Container container = await database.CreateContainerAsync("thousand", "/customer", 18_000);
            using CosmosClient bulk = newClient(true, 100);
            Container target = bulk.GetContainer(database.Id, "thousand");
            async Task<string> StatusAsync(Func<Task> operation)
            {
                try
                {
                    await operation();
                    return "done";
                }
                catch (CosmosException error)
                {
                    return $"{(int)error.StatusCode}/{error.SubStatusCode}";
                }
            }
            var told = await Task.WhenAll(Enumerable.Range(0, 1_000).Select(n =>
            {
                var (id, customer) = ($"t{n}", $"customer{n % 83}");
                var order = new Order(id, customer, n);
                return StatusAsync(() => (n % 5) switch
                {
                    0 => target.CreateItemAsync(order, Of(customer)),
                    1 => target.ReadItemAsync<Order>(id, Of(customer)),
                    2 => target.UpsertItemAsync(order, Of("another")),
                    3 => target.PatchItemAsync<Order>(id, Of(customer), [PatchOperation.Set("/total", 1)]),
                    _ => target.UpsertItemAsync(order, Of(customer), new ItemRequestOptions { EnableContentResponseOnWrite = false }),
                });
            }));
            string[] wanted = ["done", "404/0", "400/1001", "404/0", "done"];
            Expect.Same(Enumerable.Range(0, 1_000).Select(n => wanted[n % 5]), told, "what is told");
            var many = Enumerable.Range(0, 1_000).Select(n => ($"t{n}", Of($"customer{n % 83}"))).ToList();
            Expect.Equal(400, (await container.ReadManyItemsAsync<Order>(many)).Count, "what is there, read many at a time");
        });
        await report.CheckAsync("bulk", "that is given up on over the throughput has written what it says", async () =>
        {
            Container container = await database.CreateContainerAsync("narrow", "/customer", 400);
            using CosmosClient bulk = newClient(true, 0);
            Container target = bulk.GetContainer(database.Id, "narrow");
            var told = await Task.WhenAll(Enumerable.Range(0, 400).Select(async n =>
            {
                try
                {
                    return (await target.CreateItemAsync(new Order($"n{n}", $"customer{n % 3}", n), Of($"customer{n % 3}"))).StatusCode;
                }
                catch (CosmosException error)
                {
                    return error.StatusCode;
                }
            }));
            Expect.True(told.All(status => status is HttpStatusCode.Created or HttpStatusCode.TooManyRequests), "created or 429");
            Expect.True(told.Contains(HttpStatusCode.TooManyRequests), "some are too many");
            using FeedIterator<int> count = container.GetItemQueryIterator<int>("SELECT VALUE COUNT(1) FROM c");
            Expect.Equal(told.Count(status => status == HttpStatusCode.Created), (await count.ReadNextAsync()).Single(), "what is there");
        });
    }
}
