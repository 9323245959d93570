using System.Linq.Expressions;
using Microsoft.Azure.Cosmos;
using Microsoft.Azure.Cosmos.Linq;
using Newtonsoft.Json;
using Newtonsoft.Json.Converters;

namespace Epitaph.Clients;

internal enum Colour { Red, Green, Blue }

internal sealed record Pet(string Name, double Weight);

internal sealed record Child(string Name, int Grade, List<Pet> Pets);

internal sealed record Person(
    [property: JsonProperty("id")] string Id,
    [property: JsonProperty("customer")] string Customer,
    string Name,
    int Age,
    long Large,
    double Balance,
    bool Active,
    int? Score,
    DateTime At,
    Guid Reference,
    Colour Colour,
    [property: JsonConverter(typeof(StringEnumConverter))] Colour Named,
    string? Note,
    int[] Numbers,
    List<string> Tags,
    List<Child> Children,
    Dictionary<string, int> Counts);

/// <summary>What the LINQ provider translates has the rows that LINQ to objects finds in the same data, in the same order.</summary>
internal static class LinqChecks
{
    private static readonly List<Person> People = [.. Enumerable.Range(0, 36).Select(Make)];

    private static Person Make(int n)
    {
        string[] names = ["Ann", "bob", "Émile", "  pad ", "o'Neil", "x\"y", "", "日本", "a\\b"];
        return new Person(
            $"p{n:00}", $"customer{n % 11}", names[n % 9], 18 + n % 7, 9007199254740993L + n, Math.Round((n - 15.5) * 1.37, 2),
            n % 3 == 0, n % 4 == 0 ? null : n % 5, new DateTime(2020 + n % 4, 1 + n % 12, 1 + n % 28, n % 24, n, 0, DateTimeKind.Utc).AddTicks(n * 12345L),
            new Guid(n, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10), (Colour)(n % 3), (Colour)((n + 1) % 3), n % 6 == 0 ? null : $"note{n % 7}",
            [.. Enumerable.Range(0, n % 5).Select(k => (k * 7 + n) % 10)], [.. Enumerable.Range(0, n % 4).Select(k => $"t{(n + k) % 6}")],
            [.. Enumerable.Range(0, n % 3).Select(k => new Child($"child{(n + k) % 7}", (n + k) % 6,
                [.. Enumerable.Range(0, (n + k) % 3).Select(m => new Pet($"pet{m}", m + n / 10.0))]))],
            new Dictionary<string, int> { ["a"] = n, ["b"] = n % 3 });
    }

    public static async Task RunAsync(Report report, Database database)
    {
        // Over one range the server runs queries whole, over several the client merges what each has.
        foreach (var (ranges, throughput) in new[] { ("one range", 6_000), ("several ranges", 24_000) })
        {
            Container container = await database.CreateContainerAsync($"linq {ranges}", "/customer", throughput);
            await Task.WhenAll(People.Select(person => container.CreateItemAsync(person, new PartitionKey(person.Customer))));
            IQueryable<Person> Source() => container.GetItemLinqQueryable<Person>(requestOptions: new QueryRequestOptions { MaxItemCount = 7 });
            async Task SameAsync<T>(string what, Func<IQueryable<Person>, IQueryable<T>> query, bool ordered = false)
            {
                var found = new List<T>();
                using FeedIterator<T> pages = query(Source()).ToFeedIterator();
                while (pages.HasMoreResults) found.AddRange(await pages.ReadNextAsync());
                var texts = found.Select(row => JsonConvert.SerializeObject(row));
                var wanted = query(People.AsQueryable()).ToList().Select(row => JsonConvert.SerializeObject(row));
                Expect.Same(ordered ? wanted : wanted.Order(StringComparer.Ordinal), ordered ? texts : texts.Order(StringComparer.Ordinal), what);
            }

            await report.CheckAsync("linq", $"filters find the same over {ranges}", async () =>
            {
                int[] ages = [18, 20, 23];
                List<string> names = ["Ann", "x\"y", "日本", "a\\b", "o'Neil"];
                Colour[] colours = [Colour.Red, Colour.Blue];
                var day = new DateTime(2021, 6, 1, 0, 0, 0, DateTimeKind.Utc);
                Expression<Func<Person, bool>>[] filters =
                [
                    person => person.Large == 9007199254740995L, person => person.Large > 9007199254740999L,
                    person => (person.Age > 20 && !person.Active) || person.Name == "bob", person => person.Name == "a\\b",
                    person => person.Score == null, person => person.Score > 2, person => person.Score.HasValue && person.Score.Value == 1,
                    person => person.Note != null && person.Note.StartsWith("note3"), person => person.At >= day && person.At < day.AddYears(1),
                    person => person.At == People[5].At, person => person.Reference == People[7].Reference,
                    person => person.Colour == Colour.Blue, person => person.Named == Colour.Blue, person => colours.Contains(person.Colour),
                    person => ages.Contains(person.Age), person => !names.Contains(person.Name), person => person.Tags.Contains("t3"),
                    person => person.Children.Any(), person => person.Children.Any(child => child.Pets.Any(pet => pet.Weight > 2)),
                    person => !person.Children.Any(child => child.Grade == 1), person => person.Numbers.Any(n => n == person.Age - 18),
                    person => person.Children.Where(child => child.Grade > 1).Count() == 2, person => person.Numbers.Sum() > 15,
                    person => person.Children.SelectMany(child => child.Pets).Count() > 1, person => person.Counts["b"] == person.Counts["a"],
                    person => person.Age % 3 == 1 && (person.Age & 1) == 1, person => (person.Active ? person.Age : 0) > 20,
                    person => person.Name.Contains("NN", StringComparison.OrdinalIgnoreCase), person => person.Name.ToUpper() == "ÉMILE",
                    person => person.Name.Trim() == "pad", person => person.Name.IndexOf("n") == 1, person => person.Name.Replace("n", "m") == "Amm",
                    person => person.Name + "-" + person.Id == "Ann-p00", person => person.Id.CompareTo("p20") < 0, person => person.Age.ToString() == "20",
                    person => Math.Abs(person.Balance) < 5, person => Math.Floor(person.Balance) == -3, person => Math.Pow(person.Age, 2) == 400,
                ];
                foreach (var filter in filters) await SameAsync(filter.ToString(), people => people.Where(filter).Select(person => person.Id));
            });
            await report.CheckAsync("linq", $"orders, bounds and projections give the same over {ranges}", async () =>
            {
                await SameAsync("order", people => people.OrderBy(person => person.Age).ThenByDescending(person => person.Id).Select(person => person.Id), true);
                await SameAsync("order with null", people => people.OrderBy(person => person.Score).ThenBy(person => person.Id).Select(person => person.Id), true);
                await SameAsync("bounds", people => people.OrderByDescending(person => person.Balance).Skip(3).Take(10).Select(person => person.Id), true);
                await SameAsync("order by what is computed", people => people.OrderBy(person => person.Age % 4).ThenBy(person => person.Id).Select(person => person.Id), true);
                await SameAsync("distinct in order", people => people.OrderBy(person => person.Age).Select(person => person.Age).Distinct(), true);
                await SameAsync("distinct objects", people => people.Select(person => new { person.Age, person.Active }).Distinct());
                await SameAsync("whole", people => people.Where(person => person.Age == 20));
                await SameAsync("parts", people => people.Select(person => new
                {
                    person.Id, next = person.Age + 1, high = person.Children.Where(child => child.Grade > 2).ToList(), sum = person.Numbers.Sum(),
                }));
                await SameAsync("many", people => people.SelectMany(person =>
                    person.Children.SelectMany(child => child.Pets.Select(pet => new { person.Id, child.Name, pet.Weight }))));
                await SameAsync("groups", people => people.GroupBy(person => person.Colour, (key, group) =>
                    new { key, n = group.Count(), oldest = group.Max(person => person.Age), youngest = group.Min(person => person.Age) }));
            });
            await report.CheckAsync("linq", $"aggregates are the same over {ranges}", async () =>
            {
                Expect.Equal(People.Count(person => person.Active), (await Source().Where(person => person.Active).CountAsync()).Resource, "count");
                Expect.Equal(People.Sum(person => person.Age), (await Source().Select(person => person.Age).SumAsync()).Resource, "sum");
                Expect.Equal(People.Average(person => person.Age), (await Source().Select(person => person.Age).AverageAsync()).Resource, "average");
                Expect.Equal(People.Min(person => person.Balance), (await Source().Select(person => person.Balance).MinAsync()).Resource, "minimum");
                Expect.Equal(People.Max(person => person.Large), (await Source().Select(person => person.Large).MaxAsync()).Resource, "maximum of 64 bits");
                Expect.Equal(People.Max(person => person.At), (await Source().Select(person => person.At).MaxAsync()).Resource, "latest");
                Expect.Equal(7, (await Source().Select(person => person.Age).Distinct().CountAsync()).Resource, "distinct");
                Expect.Equal(People.Sum(person => person.Numbers.Sum()), (await Source().SelectMany(person => person.Numbers).SumAsync()).Resource, "sum of arrays");
            });
        }
    }
}
