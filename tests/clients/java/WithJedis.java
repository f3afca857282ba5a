import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import redis.clients.jedis.AbstractTransaction;
import redis.clients.jedis.ConnectionPoolConfig;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.Response;
import redis.clients.jedis.ScanIteration;
import redis.clients.jedis.csc.CacheConfig;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.params.SetParams;
import redis.clients.jedis.resps.ScanResult;

/** What an application does with jedis. */
final class WithJedis {
    static DefaultJedisClientConfig.Builder config() {
        RedisProtocol protocol = Drive.protocol == 3 ? RedisProtocol.RESP3 : RedisProtocol.RESP2;
        return DefaultJedisClientConfig.builder().password(Drive.password).protocol(protocol);
    }

    static HostAndPort address() {
        return new HostAndPort("127.0.0.1", Drive.port);
    }

    /** A client that pools its connections. */
    static RedisClient connect(int connections) {
        ConnectionPoolConfig pool = new ConnectionPoolConfig();
        pool.setMaxTotal(connections);
        return RedisClient.builder().hostAndPort(address()).clientConfig(config().build()).poolConfig(pool).build();
    }

    static void names() {
        var named = config().user("default").database(3).clientName("tester").build();
        try (Jedis client = new Jedis(address(), named)) {
            Drive.equal(client.clientGetname(), "tester");
            Drive.isTrue(client.clientInfo().contains(" db=3 "));
            Drive.isTrue(client.clientInfo().contains(" resp=" + Drive.protocol));
            client.aclSetUser("reader", "on", ">secret", "~r:*", "+get", "+hello", "+client|setinfo");
            try (Jedis reader = new Jedis(address(), config().user("reader").password("secret").build())) {
                Drive.equal(reader.get("r:1"), null);
                Drive.fails("NOPERM", () -> reader.get("k"));
                Drive.fails("NOPERM", () -> reader.set("r:1", "v"));
            }
            Drive.equal(client.aclDelUser("reader"), 1L);
        }
        Drive.fails("WRONGPASS", () -> new Jedis(address(), config().password("wrong").build()).ping());
        Drive.fails("NOAUTH", () -> new Jedis(address(), config().password(null).build()).ping());
    }

    static void values() {
        try (RedisClient client = connect(2)) {
            client.flushAll();
            Drive.equal(client.set("k", "v", SetParams.setParams().ex(100)), "OK");
            Drive.equal(client.get("k"), "v");
            Drive.isTrue(client.ttl("k") > 90);
            Drive.equal(client.set("k", "w", SetParams.setParams().nx()), null);
            Drive.equal(client.sadd("s", "a", "b", "c"), 3L);
            Drive.equal(client.sadd("t", "b", "c", "d"), 3L);
            Drive.equal(client.sinter("s", "t"), Set.of("b", "c"));
            Drive.equal(client.smismember("s", "a", "x"), List.of(true, false));
            Drive.equal(client.incrByFloat("f", 1.5), 1.5);
            Drive.fails("WRONGTYPE", () -> client.incr("s"));
            byte[] key = Arrays.copyOf(Drive.everyByte(), 256);
            client.set(key, Drive.everyByte());
            Drive.isTrue(Arrays.equals(client.get(key), Drive.everyByte()));
        }
    }

    static void pools() {
        try (RedisClient client = connect(8)) {
            IntStream.range(0, 400).parallel().forEach(n -> client.incr("count"));
            Drive.equal(client.get("count"), "400");
        }
    }

    static void pipelines() {
        try (RedisClient client = connect(2); Pipeline pipe = client.pipelined()) {
            Response<Long> last = null;
            for (int n = 0; n < 1000; n++) last = pipe.incr("n");
            pipe.sync();
            Drive.equal(last.get(), 1000L);
        }
    }

    static void transactions() {
        try (RedisClient client = connect(4)) {
            for (boolean disturbed : new boolean[] {true, false}) {
                try (AbstractTransaction unit = client.transaction(false)) {
                    unit.watch("w");
                    if (disturbed) client.set("w", "5");
                    unit.multi();
                    unit.incr("w");
                    unit.get("w");
                    Drive.equal(unit.exec(), disturbed ? null : List.of(6L, "6"));
                }
            }
        }
    }

    static void scans() {
        try (RedisClient client = connect(2)) {
            client.flushAll();
            for (int n = 0; n < 500; n++) {
                client.set("key:" + n, "x");
                client.sadd("big", "" + n);
            }
            Set<String> keys = new HashSet<>();
            ScanIteration pages = client.scanIteration(100, "key:*");
            while (!pages.isIterationCompleted()) keys.addAll(pages.nextBatch().getResult());
            Drive.equal(keys.size(), 500);
            Set<String> members = new HashSet<>();
            String cursor = ScanParams.SCAN_POINTER_START;
            do {
                ScanResult<String> page = client.sscan("big", cursor, new ScanParams().count(50));
                members.addAll(page.getResult());
                cursor = page.getCursor();
            } while (!cursor.equals(ScanParams.SCAN_POINTER_START));
            Drive.equal(members.size(), 500);
        }
    }

    /** Notes what it hears on the channel "news" and the pattern "n*"; connects again when its connection ends. */
    static final class Listener extends JedisPubSub {
        final LinkedBlockingQueue<String> heard = new LinkedBlockingQueue<>();

        @Override
        public void onMessage(String channel, String text) {
            heard.add(channel + " " + text);
        }

        @Override
        public void onPMessage(String pattern, String channel, String text) {
            heard.add(pattern + " " + channel + " " + text);
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
                    Drive.isTrue(Drive.protocol > 0);
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

    static void hears(Listener listener, String text) throws Exception {
        Set<String> both = new HashSet<>();
        for (int n = 0; n < 2; n++) both.add(listener.heard.poll(20, TimeUnit.SECONDS));
        Drive.equal(both, Set.of("news " + text, "n* news " + text));
    }

    static void messages() throws Exception {
        try (RedisClient client = connect(2); Jedis asks = new Jedis(address(), config().build())) {
            Listener listener = listener();
            Drive.until("both", () -> asks.pubsubNumPat() == 1);
            Drive.equal(client.publish("news", "hello"), 2L);
            hears(listener, "hello");
            listener.punsubscribe();
            listener.unsubscribe();
            Drive.until("nobody", () -> asks.pubsubNumPat() == 0);
        }
    }

    static void startingAgain() throws Exception {
        try (RedisClient client = connect(2)) {
            Listener listener = listener();
            Drive.until("both", () -> client.publish("news", "before") == 2);
            client.set("kept", "1");
            Drive.restart();
            Drive.until("an answer", () -> client.get("kept").equals("1"));
            Drive.until("the subscriptions", () -> client.publish("news", "again") == 2);
            Drive.until("the message", () -> "n* news again".equals(listener.heard.poll()));
        }
    }

    /** A value comes from the client's memory until another client writes it. */
    static void cached() throws Exception {
        var builder = RedisClient.builder().hostAndPort(address()).clientConfig(config().build());
        var memory = CacheConfig.builder().maxSize(100).build();
        try (RedisClient client = builder.cacheConfig(memory).build(); RedisClient other = connect(2)) {
            other.set("cached", "1");
            Drive.equal(client.get("cached"), "1");
            Drive.equal(client.get("cached"), "1");
            Drive.equal(client.getCache().getStats().getHitCount(), 1L);
            for (int n = 0; n < 50; n++) {
                String value = "" + n;
                other.set("cached", value);
                Drive.until("the new value", () -> value.equals(client.get("cached")));
            }
            Drive.isTrue(client.getCache().getStats().getInvalidationCount() >= 50);
            other.flushAll();
            Drive.until("no value", () -> client.get("cached") == null);
        }
    }

    public static void main(String[] args) {
        Drive.begin("jedis", args);
        Drive.step("names", WithJedis::names);
        Drive.step("values", WithJedis::values);
        Drive.step("pools", WithJedis::pools);
        Drive.step("pipelines", WithJedis::pipelines);
        Drive.step("transactions", WithJedis::transactions);
        Drive.step("scans", WithJedis::scans);
        Drive.step("messages", WithJedis::messages);
        if (Drive.protocol == 3) Drive.step("cached", WithJedis::cached);
        Drive.step("starting_again", WithJedis::startingAgain);
        Runtime.getRuntime().halt(0);
    }
}
