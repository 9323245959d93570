"""The Python client `azure-cosmos` 4, plain and asynchronous, as a program of a user would use it.

python3 checks.py <endpoint> <key> [group…]: runs the checks against a server, all groups or those named.
"""

import asyncio
import sys
import time
import traceback
import uuid
from datetime import datetime, timedelta, timezone

from azure.core import MatchConditions
from azure.cosmos import CosmosClient, PartitionKey, ThroughputProperties, exceptions
from azure.cosmos.aio import CosmosClient as AsyncCosmosClient
from azure.cosmos.partition_key import NonePartitionKeyValue, NullPartitionKeyValue

CHECKS = []


def check(group, title):
    """Registers a check under the group by which it can be run alone."""

    def register(function):
        CHECKS.append((group, title, function))
        return function

    return register


class Unexpected(Exception):
    pass


def equal(expected, actual, what):
    if expected != actual:
        raise Unexpected(f"{what}: expected {expected!r}, not {actual!r}")


def true(condition, what):
    if not condition:
        raise Unexpected(f"not so: {what}")


def refused(status, action, sub_status=None):
    """Runs what has to be refused with a status, and gives the refusal."""
    try:
        action()
    except exceptions.CosmosHttpResponseError as error:
        equal(status, error.status_code, "status")
        if sub_status is not None:
            equal(sub_status, error.sub_status, "substatus")
        return error
    raise Unexpected(f"not refused with {status}")


def ids(items):
    return sorted(item["id"] for item in items)


class World:
    """A client, a database of its own and containers with names of their own."""

    def __init__(self, endpoint, key):
        self.endpoint, self.key = endpoint, key
        self.client = CosmosClient(endpoint, key)
        self.database = self.client.create_database(f"python-{uuid.uuid4().hex}")

    def container(self, path="/customer", **options):
        partition_key = path if isinstance(path, PartitionKey) else PartitionKey(path)
        return self.database.create_container(f"c-{uuid.uuid4().hex}", partition_key, **options)

    def orders(self, count, customers=5, **options):
        """A container of so many items, of so many customers."""
        container = self.container(**options)
        for number in range(count):
            container.create_item(order(number, customers))
        return container


def order(number, customers=5, **more):
    return {
        "id": f"o{number:03}",
        "customer": f"c{number % customers}",
        "total": number,
        "tags": [f"t{number % 3}", "all"],
        **more,
    }


def changes(container, **options):
    """All that the change feed has, with the continuation after it."""
    found = list(container.query_items_change_feed(**options))
    return found, container.client_connection.last_response_headers["etag"]


# Account and catalogue


@check("account", "is read")
def _(world):
    account = world.client.get_database_account()
    equal("Session", account.ConsistencyPolicy["defaultConsistencyLevel"], "consistency")
    true(len(account.ReadableLocations) == 1, "there is one region")


@check("account", "a wrong key is refused with 401")
def _(world):
    other = "A" * 86 + "=="
    refused(401, lambda: CosmosClient(world.endpoint, other))


@check("account", "is found by a connection string")
def _(world):
    text = f"AccountEndpoint={world.endpoint};AccountKey={world.key};"
    with CosmosClient.from_connection_string(text) as client:
        true(world.database.id in [one["id"] for one in client.list_databases()], "the database is listed")


@check("databases", "are created, listed, queried, read and deleted")
def _(world):
    name = f"more-{uuid.uuid4().hex}"
    database = world.client.create_database_if_not_exists(name)
    world.client.create_database_if_not_exists(name)
    refused(409, lambda: world.client.create_database(name))
    found = world.client.query_databases(
        "SELECT * FROM r WHERE r.id = @id", parameters=[{"name": "@id", "value": name}]
    )
    equal([name], [one["id"] for one in found], "found by a query")
    true(name in [one["id"] for one in world.client.list_databases()], "is listed")
    equal(name, database.read()["id"], "id")
    world.client.delete_database(name)
    refused(404, database.read)


@check("containers", "keep what they were created with, and are replaced")
def _(world):
    container = world.container(
        default_ttl=3600,
        indexing_policy={"indexingMode": "consistent", "excludedPaths": [{"path": "/note/?"}]},
        unique_key_policy={"uniqueKeys": [{"paths": ["/email"]}]},
    )
    properties = container.read()
    equal(3600, properties["defaultTtl"], "ttl")
    equal(["/customer"], properties["partitionKey"]["paths"], "partition key")
    equal([{"paths": ["/email"]}], properties["uniqueKeyPolicy"]["uniqueKeys"], "unique keys")
    replaced = world.database.replace_container(container, PartitionKey("/customer"), default_ttl=-1)
    equal(-1, replaced.read()["defaultTtl"], "ttl of the replaced")
    off = world.database.replace_container(container, PartitionKey("/customer"))
    true("defaultTtl" not in off.read(), "without a ttl it is off")


@check("containers", "are created once, listed, queried and deleted")
def _(world):
    first = world.database.create_container_if_not_exists("once", PartitionKey("/customer"))
    again = world.database.create_container_if_not_exists("once", PartitionKey("/customer"))
    equal(first.read()["_rid"], again.read()["_rid"], "rid")
    refused(409, lambda: world.database.create_container("once", PartitionKey("/customer")))
    true("once" in [one["id"] for one in world.database.list_containers()], "is listed")
    found = world.database.query_containers("SELECT * FROM r WHERE r.id = 'once'")
    equal(["once"], [one["id"] for one in found], "found by a query")
    world.database.delete_container("once")
    refused(404, first.read)
    refused(404, lambda: first.create_item(order(1)))


@check("containers", "made anew under the same name are found by a client that knew the old one")
def _(world):
    name = f"again-{uuid.uuid4().hex}"
    container = world.database.create_container(name, PartitionKey("/customer"))
    container.create_item(order(1))
    with CosmosClient(world.endpoint, world.key) as other:
        other.get_database_client(world.database.id).delete_container(name)
        other.get_database_client(world.database.id).create_container(name, PartitionKey("/region"))
    container.create_item({"id": "o2", "region": "north"})
    equal("o2", container.read_item("o2", partition_key="north")["id"], "read by the new key")


# Items


@check("items", "are created, read, replaced, upserted and deleted")
def _(world):
    container = world.container()
    created = container.create_item(order(1))
    true(created["_etag"] and created["_ts"] and created["_rid"], "system properties")
    true(float(created.get_response_headers()["x-ms-request-charge"]) > 0, "a charge")
    refused(409, lambda: container.create_item(order(1)))
    equal(created, container.read_item("o001", "c1"), "read")
    replaced = container.replace_item("o001", {**order(1), "total": 7})
    equal(7, replaced["total"], "replaced")
    true(replaced["_etag"] != created["_etag"], "another etag")
    equal(8, container.upsert_item({**order(1), "total": 8})["total"], "upserted")
    equal("o002", container.upsert_item(order(2))["id"], "upserted anew")
    container.delete_item("o001", "c1")
    refused(404, lambda: container.read_item("o001", "c1"))
    refused(404, lambda: container.delete_item("o001", "c1"))
    refused(404, lambda: container.replace_item("o001", order(1)))
    equal(["o002"], ids(container.read_all_items()), "what is left")


@check("items", "without an answer's content, with an id of the client's, and with names that need escaping")
def _(world):
    container = world.container()
    answer = container.create_item(order(1), no_response=True)
    equal({}, dict(answer), "no content")
    made = container.create_item({"customer": "c"}, enable_automatic_id_generation=True)
    true(len(made["id"]) == 36, "an id was made")
    for name in ["a b", "ä€𝄞", "a'\"b", "a%2Fb", "a+b&c=d", "~!@$^*()"]:
        container.create_item({"id": name, "customer": name, "ok": True})
        true(container.read_item(name, name)["ok"], f"read {name}")
        found = container.query_items("SELECT * FROM c WHERE c.id = @id", [{"name": "@id", "value": name}], name)
        equal([name], ids(found), f"found {name}")
        container.delete_item(name, name)


@check("items", "are guarded by etags")
def _(world):
    container = world.container()
    first = container.create_item(order(1))
    second = container.upsert_item({**order(1), "total": 2})
    guard = {"etag": first["_etag"], "match_condition": MatchConditions.IfNotModified}
    refused(412, lambda: container.replace_item("o001", order(1), **guard))
    refused(412, lambda: container.delete_item("o001", "c1", **guard))
    refused(412, lambda: container.upsert_item(order(1), **guard))
    refused(412, lambda: container.patch_item("o001", "c1", [{"op": "incr", "path": "/total", "value": 1}], **guard))
    guard["etag"] = second["_etag"]
    container.replace_item("o001", {**order(1), "total": 3}, **guard)
    unchanged = container.read_item("o001", "c1")
    # To this client 304 is no error, and an item without content.
    same = container.read_item("o001", "c1", etag=unchanged["_etag"], match_condition=MatchConditions.IfModified)
    equal({}, dict(same), "not modified")
    changed = container.read_item("o001", "c1", etag=first["_etag"], match_condition=MatchConditions.IfModified)
    equal(unchanged, changed, "modified")


@check("items", "under null, absent, numeric and boolean keys are kept apart")
def _(world):
    container = world.container()
    for key in [None, 1, 1.5, True, False, "1", ""]:
        container.create_item({"id": "x", "customer": key, "key": repr(key)})
    container.create_item({"id": "x", "key": "none"})
    for key in [1, 1.5, True, False, "1", ""]:
        equal(repr(key), container.read_item("x", key)["key"], "key")
    equal("None", container.read_item("x", NullPartitionKeyValue)["key"], "null")
    equal("none", container.read_item("x", NonePartitionKeyValue)["key"], "absent")
    equal(8, len(list(container.read_all_items())), "all")
    container.delete_item("x", NonePartitionKeyValue)
    equal(7, len(list(container.read_all_items())), "all but one")


@check("items", "are patched, with every operation and a condition")
def _(world):
    container = world.container()
    container.create_item({**order(1), "gone": 1, "from": "m", "list": [1, 2]})
    patched = container.patch_item(
        "o001",
        "c1",
        [
            {"op": "add", "path": "/added", "value": {"a": 1}},
            {"op": "add", "path": "/list/-", "value": 3},
            {"op": "set", "path": "/set", "value": [1]},
            {"op": "replace", "path": "/tags/0", "value": "r"},
            {"op": "remove", "path": "/gone"},
            {"op": "incr", "path": "/total", "value": 41},
            {"op": "move", "from": "/from", "path": "/to"},
        ],
        filter_predicate="FROM c WHERE c.total = 1",
    )
    equal(42, patched["total"], "incremented")
    equal({"a": 1}, patched["added"], "added")
    equal([1, 2, 3], patched["list"], "appended")
    equal(["r", "all"], patched["tags"], "replaced")
    equal("m", patched["to"], "moved")
    true("gone" not in patched and "from" not in patched, "removed and moved away")
    operation = [{"op": "incr", "path": "/total", "value": 1}]
    refused(412, lambda: container.patch_item("o001", "c1", operation, filter_predicate="FROM c WHERE c.total = 1"))
    refused(400, lambda: container.patch_item("o001", "c1", [{"op": "remove", "path": "/nothing"}]))
    refused(404, lambda: container.patch_item("o009", "c1", operation))


@check("items", "are read many at a time")
def _(world):
    container = world.orders(40)
    names = [(f"o{number:03}", f"c{number % 5}") for number in range(0, 40, 2)]
    found = container.read_items([*names, ("missing", "c1")])
    equal(sorted(name for name, _ in names), ids(found), "found")


@check("items", "that are too large, malformed or of another key are refused")
def _(world):
    container = world.container()
    refused(413, lambda: container.create_item({**order(1), "filler": "x" * 2_200_000}))
    refused(400, lambda: container.create_item({"id": "x" * 1024, "customer": "c"}))
    refused(400, lambda: container.create_item({"id": "", "customer": "c"}))
    container.create_item(order(1))
    refused(404, lambda: container.read_item("o001", "another"))


# Time to live


@check("ttl", "of an item and of its container hide it on time")
def _(world):
    container = world.container(default_ttl=1000)
    container.create_item(order(2, ttl=-1))
    container.create_item(order(3))
    # Whole seconds count, so that it has four of them at least to be listed in.
    container.create_item(order(1, ttl=5))
    equal(3, len(list(container.read_all_items())), "at first")
    time.sleep(5.1)
    refused(404, lambda: container.read_item("o001", "c1"))
    equal(["o002", "o003"], ids(container.query_items("SELECT * FROM c", enable_cross_partition_query=True)), "left")
    world.database.replace_container(container, PartitionKey("/customer"), default_ttl=1)
    time.sleep(1.1)
    equal(["o002"], ids(container.read_all_items()), "after the shorter default")


@check("ttl", "that is no number of seconds is refused")
def _(world):
    container = world.container(default_ttl=-1)
    for ttl in [0, -2, 2_147_483_648]:
        refused(400, lambda ttl=ttl: container.create_item(order(1, ttl=ttl)))
    refused(400, lambda: world.container(default_ttl=0))


# Queries

QUERIES = [
    ("SELECT VALUE COUNT(1) FROM c", [60]),
    ("SELECT VALUE SUM(c.total) FROM c", [1770]),
    ("SELECT VALUE AVG(c.total) FROM c", [29.5]),
    ("SELECT VALUE MIN(c.total) FROM c WHERE c.total > 3", [4]),
    ("SELECT VALUE MAX(c.total) FROM c", [59]),
    ("SELECT TOP 3 VALUE c.id FROM c ORDER BY c.total DESC", ["o059", "o058", "o057"]),
    ("SELECT VALUE c.id FROM c ORDER BY c.total OFFSET 5 LIMIT 2", ["o005", "o006"]),
    ("SELECT DISTINCT VALUE c.customer FROM c ORDER BY c.customer", ["c0", "c1", "c2", "c3", "c4"]),
    ("SELECT VALUE t FROM c JOIN t IN c.tags WHERE c.id = 'o001'", ["t1", "all"]),
    ("SELECT VALUE c.id FROM c WHERE ARRAY_CONTAINS(c.tags, 't1') AND c.total < 5 ORDER BY c.total", ["o001", "o004"]),
    ("SELECT VALUE c.id FROM c WHERE c.id IN ('o001', 'o002') ORDER BY c.id", ["o001", "o002"]),
    ("SELECT VALUE c.id FROM c WHERE c.customer IN ('c1', 'c3', 'none') AND c.total < 7 ORDER BY c.id", ["o001", "o003", "o006"]),
    ("SELECT VALUE COUNT(1) FROM c WHERE c.customer = 'c0' OR c.customer = 'c4'", [24]),
    ("SELECT VALUE UPPER(c.id) FROM c WHERE STARTSWITH(c.id, 'o00') AND c.total % 5 = 0 ORDER BY c.id", ["O000", "O005"]),
]


def answers_queries(container):
    for text, expected in QUERIES:
        found = list(container.query_items(text, enable_cross_partition_query=True))
        equal(expected, found, text)


@check("queries", "over one range answer as they should")
def _(world):
    answers_queries(world.orders(60))


@check("queries", "over several ranges answer the same")
def _(world):
    answers_queries(world.orders(60, offer_throughput=18_000))


GROUPS = "SELECT c.customer, COUNT(1) AS n, SUM(c.total) AS s FROM c GROUP BY c.customer"


@check("queries", "have groups, but over several ranges, which this client can't merge")
def _(world):
    found = world.orders(20).query_items(GROUPS, enable_cross_partition_query=True)
    sums = [("c0", 4, 30), ("c1", 4, 34), ("c2", 4, 38), ("c3", 4, 42), ("c4", 4, 46)]
    equal(sums, sorted((one["customer"], one["n"], one["s"]) for one in found), "over one range")
    container = world.orders(20, offer_throughput=18_000)
    equal([{"customer": "c1", "n": 4, "s": 34}], list(container.query_items(GROUPS, partition_key="c1")), "of one key")
    error = refused(400, lambda: list(container.query_items(GROUPS, enable_cross_partition_query=True)))
    true("GroupBy" in str(error), f"what it lacks is named: {error}")


@check("queries", "are paged, and go on from a continuation")
def _(world):
    for options in [{}, {"offer_throughput": 12_000}]:
        container = world.orders(60, **options)
        for text, arguments in [
            ("SELECT * FROM c", {"partition_key": "c1"}),
            ("SELECT * FROM c WHERE c.total >= 0", {"enable_cross_partition_query": True}),
            ("SELECT * FROM c WHERE c.customer = 'c2' ORDER BY c.total", {"partition_key": "c2"}),
        ]:
            whole = [one["id"] for one in container.query_items(text, **arguments)]
            pages = container.query_items(text, max_item_count=7, **arguments).by_page()
            found = [one["id"] for one in next(pages)]
            equal(True, len(found) <= 7, "a page is no longer than asked")
            while pages.continuation_token:
                token = pages.continuation_token
                pages = container.query_items(text, max_item_count=7, **arguments).by_page(token)
                found += [one["id"] for one in next(pages)]
            equal(sorted(whole), sorted(found), text)


@check("queries", "have parameters, metrics and charges; errors say where")
def _(world):
    container = world.orders(10)
    found = container.query_items(
        "SELECT * FROM c WHERE c.total BETWEEN @from AND @to AND c.customer != @not",
        parameters=[{"name": "@from", "value": 2}, {"name": "@to", "value": 6}, {"name": "@not", "value": "c3"}],
        enable_cross_partition_query=True,
        populate_query_metrics=True,
    )
    equal(["o002", "o004", "o005", "o006"], ids(found), "found")
    headers = container.client_connection.last_response_headers
    true(float(headers["x-ms-request-charge"]) > 0, "a charge")
    true("totalExecutionTimeInMs" in headers["x-ms-documentdb-query-metrics"], "metrics")
    list(container.query_items("SELECT * FROM c WHERE c.customer = 'c1'", partition_key="c1", populate_index_metrics=True))
    metrics = container.client_connection.last_response_headers["x-ms-cosmos-index-utilization"]
    equal([], metrics["PotentialSingleIndexes"], "index metrics")
    error = refused(400, lambda: list(container.query_items("SELECT * FORM c", enable_cross_partition_query=True)))
    true("SC1001" in str(error), f"the code of a syntax error: {error}")
    refused(400, lambda: list(container.query_items("SELECT * FROM c WHERE c.total = NOPE(1)", enable_cross_partition_query=True)))


@check("queries", "of one range of the feed find what is in it")
def _(world):
    container = world.orders(60, offer_throughput=18_000)
    ranges = list(container.read_feed_ranges())
    equal(3, len(ranges), "ranges")
    found = [ids(container.query_items("SELECT * FROM c", feed_range=one)) for one in ranges]
    equal([f"o{number:03}" for number in range(60)], sorted(sum(found, [])), "all together")
    one = container.feed_range_from_partition_key("c1")
    equal(1, sum(container.is_feed_range_subset(parent, one) for parent in ranges), "a key is in one range")
    equal(12, len(list(container.query_items("SELECT * FROM c", feed_range=one))), "of one key")


# Throughput


@check("throughput", "is read and replaced, manual and autoscale")
def _(world):
    container = world.container(offer_throughput=500)
    equal(500, container.get_throughput().offer_throughput, "as created")
    equal(700, container.replace_throughput(700).offer_throughput, "replaced")
    equal(700, container.get_throughput().offer_throughput, "read again")
    scaling = world.container(offer_throughput=ThroughputProperties(auto_scale_max_throughput=4000))
    equal(4000, scaling.get_throughput().auto_scale_max_throughput, "autoscale")
    scaling.replace_throughput(ThroughputProperties(auto_scale_max_throughput=5000))
    equal(5000, scaling.get_throughput().auto_scale_max_throughput, "autoscale replaced")
    upgrading = ThroughputProperties(auto_scale_max_throughput=5000, auto_scale_increment_percent=2)
    scaling = world.container(offer_throughput=upgrading)
    equal(2, scaling.get_throughput().auto_scale_increment_percent, "auto-upgrade")
    scaling.replace_throughput(ThroughputProperties(auto_scale_max_throughput=7000, auto_scale_increment_percent=20))
    equal(20, scaling.get_throughput().auto_scale_increment_percent, "auto-upgrade replaced")
    refused(400, lambda: world.container(offer_throughput=10))


@check("throughput", "of a database is read and replaced")
def _(world):
    name = f"rich-{uuid.uuid4().hex}"
    database = world.client.create_database(name, offer_throughput=800)
    equal(800, database.get_throughput().offer_throughput, "as created")
    database.replace_throughput(900)
    equal(900, database.get_throughput().offer_throughput, "replaced")
    world.client.delete_database(name)


# Batches


@check("batches", "are done whole, or not at all")
def _(world):
    container = world.container()
    container.create_item({**order(1), "customer": "c"})
    container.create_item({**order(2), "customer": "c"})
    results = container.execute_item_batch(
        [
            ("create", ({**order(3), "customer": "c"},)),
            ("upsert", ({**order(4), "customer": "c"},)),
            ("replace", ("o001", {**order(1), "customer": "c", "total": 9})),
            ("read", ("o001",)),
            ("patch", ("o001", [{"op": "incr", "path": "/total", "value": 1}]), {"filter_predicate": "FROM c WHERE c.total = 9"}),
            ("delete", ("o002",)),
        ],
        partition_key="c",
    )
    equal([201, 201, 200, 200, 200, 204], [one["statusCode"] for one in results], "statuses")
    equal(9, results[3]["resourceBody"]["total"], "read within")
    equal(["o001", "o003", "o004"], ids(container.read_all_items()), "after it")
    try:
        container.execute_item_batch(
            [("create", ({**order(5), "customer": "c"},)), ("create", ({**order(3), "customer": "c"},))], "c"
        )
        raise Unexpected("the batch was not refused")
    except exceptions.CosmosBatchOperationError as error:
        equal(1, error.error_index, "the one that failed")
        equal([424, 409], [one["statusCode"] for one in error.operation_responses], "statuses")
    equal(["o001", "o003", "o004"], ids(container.read_all_items()), "as before")
    refused(400, lambda: container.execute_item_batch([("read", (f"x{n}",)) for n in range(101)], "c"))


@check("batches", "a partition key's items are deleted together")
def _(world):
    container = world.orders(20)
    container.delete_all_items_by_partition_key("c1")
    equal(16, len(list(container.read_all_items())), "left")


# Hierarchical keys


@check("hierarchy", "keys of several levels find items, wholly and by prefix")
def _(world):
    container = world.container(PartitionKey(["/tenant", "/user", "/session"], kind="MultiHash"), offer_throughput=12_000)
    for number in range(24):
        container.create_item(
            {"id": f"i{number}", "tenant": f"t{number % 2}", "user": f"u{number % 4}", "session": number}
        )
    equal(5, container.read_item("i5", ["t1", "u1", 5])["session"], "whole key")
    equal(12, len(list(container.query_items("SELECT * FROM c", partition_key=["t1"]))), "by tenant")
    equal(6, len(list(container.query_items("SELECT * FROM c", partition_key=["t1", "u3"]))), "by user")
    refused(404, lambda: container.read_item("i5", ["t1", "u1", 6]))
    equal(24, len(list(container.read_all_items())), "all")


# Change feed


@check("change-feed", "is read from the beginning, from now, from a time and from a continuation")
def _(world):
    container = world.orders(10)
    found, after = changes(container, start_time="Beginning")
    equal(10, len(found), "from the beginning")
    equal([], changes(container, continuation=after)[0], "nothing since")
    nothing, from_now = changes(container)
    equal([], nothing, "from now")
    container.upsert_item({**order(3), "total": 99})
    container.create_item(order(11))
    equal(["o003", "o011"], ids(changes(container, continuation=after)[0]), "since then")
    equal(["o003", "o011"], ids(changes(container, continuation=from_now)[0]), "since now")
    past = datetime.now(timezone.utc) - timedelta(hours=1)
    equal(11, len(changes(container, start_time=past)[0]), "from an hour ago")
    equal(["o001", "o006", "o011"], ids(changes(container, start_time="Beginning", partition_key="c1")[0]), "of a key")
    pages = container.query_items_change_feed(start_time="Beginning", max_item_count=3).by_page()
    sizes = [len(list(page)) for page in pages]
    equal(11, sum(sizes), "in pages")
    true(max(sizes) <= 3, "pages are no longer than asked")


@check("change-feed", "of several ranges misses nothing, as a whole and range by range")
def _(world):
    container = world.orders(30, offer_throughput=18_000)
    found, after = changes(container, start_time="Beginning")
    equal(30, len(found), "from the beginning")
    container.create_item(order(31))
    equal(["o031"], ids(changes(container, continuation=after)[0]), "since then")
    parts = [changes(container, start_time="Beginning", feed_range=one)[0] for one in container.read_feed_ranges()]
    equal(31, len(sum(parts, [])), "range by range")


@check("change-feed", "of all versions shows deletes, and expiry as such")
def _(world):
    container = world.container(default_ttl=-1, change_feed_policy={"retentionDuration": 10})
    _, start = changes(container, mode="AllVersionsAndDeletes", start_time="Now")
    container.create_item(order(1))
    container.upsert_item({**order(1), "total": 5})
    container.delete_item("o001", "c1")
    container.create_item(order(2, ttl=1))
    deadline = time.monotonic() + 20
    found = []
    while len(found) < 5 and time.monotonic() < deadline:
        time.sleep(0.5)
        found, _ = changes(container, continuation=start)
    kinds = [(one["metadata"]["operationType"], one["metadata"].get("timeToLiveExpired", False)) for one in found]
    equal(
        [("create", False), ("replace", False), ("delete", False), ("create", False), ("delete", True)],
        kinds,
        "operations",
    )


# Users and permissions


@check("users", "permissions open one container for reading, or one partition key")
def _(world):
    container = world.orders(5)
    user = world.database.create_user({"id": "reader"})
    permission = user.create_permission(
        {"id": "p", "permissionMode": "Read", "resource": container.container_link}
    )
    equal(["p"], [one["id"] for one in user.list_permissions()], "listed")
    token = permission.properties["_token"]
    with CosmosClient(world.endpoint, {container.container_link: token}) as client:
        database = client.get_database_client(world.database.id)
        reading = database.get_container_client(container.id)
        equal(1, reading.read_item("o001", "c1")["total"], "read")
        equal(5, len(list(reading.query_items("SELECT * FROM c", enable_cross_partition_query=True))), "queried")
        refused(403, lambda: reading.create_item(order(9)))
    user.delete_permission("p")
    permission = user.create_permission(
        {
            "id": "q",
            "permissionMode": "All",
            "resource": container.container_link,
            "resourcePartitionKey": ["c1"],
        }
    )
    token = permission.properties["_token"]
    with CosmosClient(world.endpoint, {container.container_link: token}) as client:
        own = client.get_database_client(world.database.id).get_container_client(container.id)
        own.create_item({"id": "more", "customer": "c1"})
        equal(["more", "o001"], ids(own.query_items("SELECT * FROM c", partition_key="c1")), "its key's items")
        refused(403, lambda: list(own.query_items("SELECT * FROM c", partition_key="c2")))
        refused(403, lambda: list(own.query_items("SELECT * FROM c", enable_cross_partition_query=True)))
        refused(403, lambda: own.read_item("o002", "c2"))
    world.database.upsert_user({"id": "reader"})
    world.database.delete_user("reader")
    refused(404, user.read)


# Scripts, conflicts


@check("scripts", "stored procedures, triggers and functions run")
def _(world):
    container = world.container()
    container.create_item(order(1))
    scripts = container.scripts
    scripts.create_stored_procedure(
        {
            "id": "sum",
            "body": """function (least) {
                var collection = getContext().getCollection();
                collection.queryDocuments(collection.getSelfLink(), "SELECT * FROM c", function (error, found) {
                    if (error) throw error;
                    getContext().getResponse().setBody({ found: found.length, least: least });
                });
            }""",
        }
    )
    equal({"found": 1, "least": 7}, scripts.execute_stored_procedure("sum", partition_key="c1", params=[7]), "its answer")
    scripts.create_trigger(
        {
            "id": "stamp",
            "body": """function () {
                var request = getContext().getRequest();
                var item = request.getBody();
                item.stamped = true;
                request.setBody(item);
            }""",
            "triggerType": "Pre",
            "triggerOperation": "All",
        }
    )
    equal(True, container.create_item(order(2), pre_trigger_include="stamp")["stamped"], "what the trigger made of it")
    scripts.create_user_defined_function({"id": "twice", "body": "function (n) { return 2 * n; }"})
    found = container.query_items("SELECT VALUE udf.twice(COUNT(1)) FROM c", partition_key="c1")
    equal([2], list(found), "what a query calls")
    equal(["sum"], [one["id"] for one in scripts.list_stored_procedures()], "stored procedures")
    scripts.delete_stored_procedure("sum")
    equal([], list(scripts.list_stored_procedures()), "stored procedures that are left")


@check("conflicts", "are none")
def _(world):
    equal([], list(world.container().list_conflicts()), "conflicts")


# Consistency


@check("sessions", "are read by another client at the session of the one that wrote")
def _(world):
    container = world.container()
    container.create_item(order(1))
    token = container.client_connection.last_response_headers["x-ms-session-token"]
    with CosmosClient(world.endpoint, world.key, consistency_level="Session") as client:
        other = client.get_database_client(world.database.id).get_container_client(container.id)
        equal("o001", other.read_item("o001", "c1", session_token=token)["id"], "read at the session")
    for level in ["Session", "ConsistentPrefix", "Eventual"]:
        with CosmosClient(world.endpoint, world.key, consistency_level=level) as client:
            other = client.get_database_client(world.database.id).get_container_client(container.id)
            equal("o001", other.read_item("o001", "c1")["id"], level)


@check("sessions", "of several tokens the latest is found for a range")
def _(world):
    container = world.container()
    tokens = []
    for number in range(3):
        container.create_item(order(number))
        tokens.append(container.client_connection.last_response_headers["x-ms-session-token"])
    whole = next(iter(container.read_feed_ranges()))
    latest = container.get_latest_session_token([(whole, token) for token in tokens], whole)
    equal("o002", container.read_item("o002", "c2", session_token=latest)["id"], "read at the latest")


# The asynchronous client


@check("async", "does all of it, many at once")
def _(world):
    asyncio.run(asynchronously(world))


async def asynchronously(world):
    async with AsyncCosmosClient(world.endpoint, world.key) as client:
        database = client.get_database_client(world.database.id)
        container = await database.create_container(f"a-{uuid.uuid4().hex}", PartitionKey("/customer"), offer_throughput=12_000)
        await asyncio.gather(*[container.create_item(order(number)) for number in range(60)])
        found = [one["id"] async for one in container.query_items("SELECT * FROM c ORDER BY c.total")]
        equal([f"o{number:03}" for number in range(60)], found, "in order")
        many = await container.read_items([(f"o{number:03}", f"c{number % 5}") for number in range(30)])
        equal(30, len(many), "read many")
        counted = [one async for one in container.query_items("SELECT VALUE COUNT(1) FROM c")]
        equal([60], counted, "counted")
        feed = [one["id"] async for one in container.query_items_change_feed(start_time="Beginning")]
        equal(60, len(set(feed)), "the feed")
        results = await container.execute_item_batch([("delete", ("o001",)), ("delete", ("o006",))], "c1")
        equal([204, 204], [one["statusCode"] for one in results], "a batch")
        ranges = [one async for one in container.read_feed_ranges()]
        equal(2, len(ranges), "ranges")
        left = 0
        for one in ranges:
            left += len([item async for item in container.query_items("SELECT * FROM c", feed_range=one)])
        equal(58, left, "range by range")
        try:
            await container.read_item("o001", "c1")
            raise Unexpected("a deleted item was read")
        except exceptions.CosmosResourceNotFoundError:
            pass


def main(endpoint, key, groups):
    passed = failed = 0
    world = World(endpoint, key)
    try:
        for group, title, function in CHECKS:
            if groups and group not in groups:
                continue
            start = time.monotonic()
            try:
                function(world)
                passed += 1
                print(f"ok {group}: {title} ({round((time.monotonic() - start) * 1000)} ms)", flush=True)
            except Exception:  # pylint: disable=broad-except
                failed += 1
                lines = " / ".join(line.strip() for line in traceback.format_exc().splitlines())
                print(f"FAILED {group}: {title}: {lines[-1800:]}", flush=True)
    finally:
        world.client.delete_database(world.database)
        world.client.close()
    print(f"{passed} passed, {failed} failed")
    return 0 if failed == 0 and passed > 0 else 1


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: checks.py <endpoint> <key> [group…]")
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
