import static redis.clients.jedis.args.ListDirection.LEFT;
import static redis.clients.jedis.args.ListDirection.RIGHT;

import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.IntStream;
import redis.clients.jedis.AbstractTransaction;
import redis.clients.jedis.ConnectionPoolConfig;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.GeoCoordinate;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.Response;
import redis.clients.jedis.ScanIteration;
import redis.clients.jedis.args.GeoUnit;
import redis.clients.jedis.csc.CacheConfig;
import redis.clients.jedis.params.GeoSearchParam;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.params.SetParams;
import redis.clients.jedis.params.ZRangeParams;
import redis.clients.jedis.resps.GeoRadiusResponse;
import redis.clients.jedis.resps.ScanResult;
import redis.clients.jedis.resps.Tuple;
import redis.clients.jedis.util.KeyValue;

/** An application's use of jedis. */
final class WithJedis extends Drive {
    static DefaultJedisClientConfig.Builder config() {
        RedisProtocol version = protocol == 3 ? RedisProtocol.RESP3 : RedisProtocol.RESP2;
        return DefaultJedisClientConfig.builder().password(password).protocol(version);
    }

    static HostAndPort address() {
        return new HostAndPort("127.0.0.1", port);
    }

    /** A client that pools its connections. */
    static RedisClient connect(int connections) {
        ConnectionPoolConfig pool = new ConnectionPoolConfig();
        pool.setMaxTotal(connections);
        return RedisClient.builder().hostAndPort(address()).clientConfig(config().build()).poolConfig(pool).build();
    }

    @Override
    void names() {
        var named = config().user("default").database(3).clientName("tester").build();
        try (Jedis client = new Jedis(address(), named)) {
            equal(client.clientGetname(), "tester");
            isTrue(client.clientInfo().contains(" db=3 "));
            isTrue(client.clientInfo().contains(" resp=" + protocol));
            client.aclSetUser("reader", "on", ">secret", "~r:*", "+get", "+hello", "+client|setinfo");
            try (Jedis reader = new Jedis(address(), config().user("reader").password("secret").build())) {
                equal(reader.get("r:1"), null);
                fails("NOPERM", () -> reader.get("k"));
                fails("NOPERM", () -> reader.set("r:1", "v"));
            }
            equal(client.aclDelUser("reader"), 1L);
        }
        fails("WRONGPASS", () -> new Jedis(address(), config().password("wrong").build()).ping());
        fails("NOAUTH", () -> new Jedis(address(), config().password(null).build()).ping());
    }

    @Override
    void values() {
        try (RedisClient client = connect(2)) {
            client.flushAll();
            equal(client.set("k", "v", SetParams.setParams().ex(100)), "OK");
            equal(client.get("k"), "v");
            isTrue(client.ttl("k") > 90);
            equal(client.set("k", "w", SetParams.setParams().nx()), null);
            equal(client.sadd("s", "a", "b", "c"), 3L);
            equal(client.sadd("t", "b", "c", "d"), 3L);
            equal(client.sinter("s", "t"), Set.of("b", "c"));
            equal(client.smismember("s", "a", "x"), List.of(true, false));
            equal(client.incrByFloat("f", 1.5), 1.5);
            fails("WRONGTYPE", () -> client.incr("s"));
            byte[] key = Arrays.copyOf(everyByte(), 256);
            client.set(key, everyByte());
            isTrue(Arrays.equals(client.get(key), everyByte()));
        }
    }

    @Override
    void pools() {
        try (RedisClient client = connect(8)) {
            IntStream.range(0, 400).parallel().forEach(n -> client.incr("count"));
            equal(client.get("count"), "400");
        }
    }

    @Override
    void pipelines() {
        try (RedisClient client = connect(2); Pipeline pipe = client.pipelined()) {
            Response<Long> last = null;
            for (int n = 0; n < 1000; n++) last = pipe.incr("n");
            pipe.sync();
            equal(last.get(), 1000L);
        }
    }

    @Override
    void transactions() {
        try (RedisClient client = connect(4)) {
            for (boolean disturbed : new boolean[] {true, false}) {
                try (AbstractTransaction unit = client.transaction(false)) {
                    unit.watch("w");
                    if (disturbed) client.set("w", "5");
                    unit.multi();
                    unit.incr("w");
                    unit.get("w");
                    equal(unit.exec(), disturbed ? null : List.of(6L, "6"));
                }
            }
        }
    }

    @Override
    void collections() throws Exception {
        try (RedisClient client = connect(4)) {
            client.flushAll();
            hash(client);
            queue(client);
            leaderboard(client);
            map(client);
        }
    }

    private static void hash(RedisClient client) throws Exception {
        Map<String, String> user = Map.of("name", "Ann", "city", "Rome", "visits", "5");
        equal(client.hset("user", user), 3L);
        equal(client.hgetAll("user"), user);
        equal(client.hincrBy("user", "visits", 3), 8L);
        equal(client.hdel("user", "city", "none"), 1L);
        equal(client.hpexpire("user", 20, "visits", "none"), List.of(1L, -2L));
        equal(client.httl("user", "name"), List.of(-1L));
        until("an expired field", () -> client.hgetAll("user").equals(Map.of("name", "Ann")));
    }

    private static void queue(RedisClient client) throws Exception {
        equal(client.rpush("queue", "a", "b"), 2L);
        equal(client.lpop("queue"), "a");
        equal(client.lrange("queue", 0, -1), List.of("b"));
        equal(client.lmove("queue", "working", LEFT, RIGHT), "b");
        Body push = () -> client.rpush("queue", "c");
        equal(waits(() -> client.blpop(20.0, "none", "queue"), push), KeyValue.of("queue", "c"));
        equal(waits(() -> client.blmove("queue", "working", LEFT, RIGHT, 20), push), "c");
        equal(client.lrange("working", 0, -1), List.of("b", "c"));
        equal(client.blpop(0.1, "queue"), null);
        equal(client.blmove("queue", "working", LEFT, RIGHT, 0.1), null);
    }

    private static void leaderboard(RedisClient client) throws Exception {
        double most = Double.POSITIVE_INFINITY;
        List<Tuple> everyone = List.of(new Tuple("Bob", 2.0), new Tuple("Ann", 3.75), new Tuple("Cid", most));
        equal(client.zadd("board", Map.of("Ann", 1.5, "Bob", 2.0, "Cid", most)), 3L);
        equal(client.zincrby("board", 2.25, "Ann"), 3.75);
        equal(client.zrangeWithScores("board", 0, -1), everyone);
        equal(client.zscore("board", "Cid"), most);
        equal(client.zrevrank("board", "none"), null);
        equal(client.zrevrankWithScore("board", "Ann"), KeyValue.of(1L, 3.75));
        var above = ZRangeParams.zrangeByScoreParams(2, most).limit(1, 1);
        equal(client.zrangeWithScores("board", above), everyone.subList(1, 2));
        equal(client.zpopmin("board", 2), everyone.subList(0, 2));
        equal(client.zpopmin("board"), everyone.get(2));
        var popped = waits(() -> client.bzpopmin(20, "waited"), () -> client.zadd("waited", -0.5, "Eve"));
        equal(popped, KeyValue.of("waited", new Tuple("Eve", -0.5)));
        equal(client.bzpopmin(0.1, "waited"), null);
    }

    private static void map(RedisClient client) {
        var palermo = new GeoCoordinate(13.361389, 38.115556);
        var catania = new GeoCoordinate(15.087269, 37.502669);
        equal(client.geoadd("places", Map.of("Palermo", palermo, "Catania", catania)), 2L);
        var near = GeoSearchParam.geoSearchParam().fromLonLat(15, 37).byRadius(200, GeoUnit.KM).asc().withDist().withCoord();
        var found = client.geosearch("places", near);
        equal(found.stream().map(GeoRadiusResponse::getMemberByString).toList(), List.of("Catania", "Palermo"));
        equal(found.stream().map(GeoRadiusResponse::getDistance).toList(), List.of(56.4413, 190.4424));
        equal(found.get(0).getCoordinate(), new GeoCoordinate(15.087267458438873, 37.50266842333162));
    }

    @Override
    void scans() {
        try (RedisClient client = connect(2)) {
            client.flushAll();
            times500(n -> {
                client.set("key:" + n, "x");
                client.sadd("big", "" + n);
            });
            finds500(keys -> {
                ScanIteration pages = client.scanIteration(100, "key:*");
                while (!pages.isIterationCompleted()) keys.addAll(pages.nextBatch().getResult());
            });
            finds500(members -> {
                String cursor = ScanParams.SCAN_POINTER_START;
                do {
                    ScanResult<String> page = client.sscan("big", cursor, new ScanParams().count(50));
                    members.addAll(page.getResult());
                    cursor = page.getCursor();
                } while (!cursor.equals(ScanParams.SCAN_POINTER_START));
            });
        }
    }

    /** Reconnects when its connection ends. */
    static final class Listener extends JedisPubSub {
        final Heard heard = new Heard();

        @Override
        public void onMessage(String channel, String text) {
            heard.on(channel, text);
        }

        @Override
        public void onPMessage(String pattern, String channel, String text) {
            heard.on(pattern, channel, text);
        }

        @Override
        public void onSubscribe(String channel, int count) {
            psubscribe("n*");
        }

        void listen() {
            while (true) {
                try (Jedis client = new Jedis(address(), config().build())) {
                    client.subscribe(this, "news");
                    return;
                } catch (redis.clients.jedis.exceptions.JedisConnectionException away) {
                    isTrue(protocol > 0);
                }
            }
        }
    }

    static Listener listener() {
        Listener listener = new Listener();
        Thread thread = new Thread(listener::listen);
        thread.setDaemon(true);
        thread.start();
        return listener;
    }

    @Override
    void messages() throws Exception {
        try (RedisClient client = connect(2); Jedis asks = new Jedis(address(), config().build())) {
            Listener listener = listener();
            until("both", () -> asks.pubsubNumPat() == 1);
            equal(client.publish("news", "hello"), 2L);
            listener.heard.both("hello");
            listener.punsubscribe();
            listener.unsubscribe();
            until("nobody", () -> asks.pubsubNumPat() == 0);
        }
    }

    @Override
    void startingAgain() throws Exception {
        try (RedisClient client = connect(2)) {
            Listener listener = listener();
            until("both", () -> client.publish("news", "before") == 2);
            client.set("kept", "1");
            restart();
            until("an answer", () -> client.get("kept").equals("1"));
            until("the subscriptions", () -> client.publish("news", "again") == 2);
            listener.heard.atLast("again");
        }
    }

    /** A value comes from the client's cache until another client writes it. */
    @Override
    void cached() throws Exception {
        var builder = RedisClient.builder().hostAndPort(address()).clientConfig(config().build());
        var memory = CacheConfig.builder().maxSize(100).build();
        try (RedisClient client = builder.cacheConfig(memory).build(); RedisClient other = connect(2)) {
            other.set("cached", "1");
            equal(client.get("cached"), "1");
            equal(client.get("cached"), "1");
            equal(client.getCache().getStats().getHitCount(), 1L);
            follows(value -> other.set("cached", value), () -> client.get("cached"));
            isTrue(client.getCache().getStats().getInvalidationCount() >= 50);
            other.flushAll();
            until("no value", () -> client.get("cached") == null);
        }
    }

    public static void main(String[] args) {
        begin("jedis", args);
        cases(new WithJedis());
    }
}
