import io.lettuce.core.AclSetuserArgs;
import io.lettuce.core.ClientOptions;
import io.lettuce.core.LettuceFutures;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.RedisURI;
import io.lettuce.core.ScanArgs;
import io.lettuce.core.ScanIterator;
import io.lettuce.core.SetArgs;
import io.lettuce.core.TrackingArgs;
import io.lettuce.core.TransactionResult;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.api.async.RedisAsyncCommands;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.codec.ByteArrayCodec;
import io.lettuce.core.protocol.CommandType;
import io.lettuce.core.protocol.ProtocolVersion;
import io.lettuce.core.pubsub.RedisPubSubAdapter;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;
import io.lettuce.core.resource.ClientResources;
import io.lettuce.core.resource.Delay;
import io.lettuce.core.support.ConnectionPoolSupport;
import io.lettuce.core.support.caching.CacheAccessor;
import io.lettuce.core.support.caching.ClientSideCaching;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.apache.commons.pool2.impl.GenericObjectPoolConfig;

/** What an application does with lettuce. */
final class WithLettuce {
    private static RedisClient client;

    static RedisURI.Builder address() {
        return RedisURI.builder().withHost("127.0.0.1").withPort(Drive.port);
    }

    static StatefulRedisConnection<String, String> connect(RedisURI.Builder to) {
        return client.connect(to.build());
    }

    static StatefulRedisConnection<String, String> connect() {
        return client.connect();
    }

    static void names() {
        var named = address().withAuthentication("default", Drive.password).withDatabase(3).withClientName("tester");
        try (var connection = connect(named)) {
            RedisCommands<String, String> asks = connection.sync();
            Drive.equal(asks.clientGetname(), "tester");
            Drive.isTrue(asks.clientInfo().contains(" db=3 "));
            Drive.isTrue(asks.clientInfo().contains(" resp=" + Drive.protocol));
            AclSetuserArgs rules = AclSetuserArgs.Builder.on().addPassword("secret").keyPattern("r:*").addCommand(CommandType.GET);
            asks.aclSetuser("reader", rules);
            try (var reader = connect(address().withAuthentication("reader", "secret"))) {
                Drive.equal(reader.sync().get("r:1"), null);
                Drive.fails("NOPERM", () -> reader.sync().get("k"));
                Drive.fails("NOPERM", () -> reader.sync().set("r:1", "v"));
            }
            Drive.equal(asks.aclDeluser("reader"), 1L);
        }
        Drive.fails("WRONGPASS", () -> connect(address().withPassword("wrong".toCharArray())).sync().ping());
        Drive.fails("NOAUTH", () -> connect(address()).sync().ping());
    }

    static void values() {
        try (var connection = connect(); var binary = client.connect(ByteArrayCodec.INSTANCE)) {
            RedisCommands<String, String> asks = connection.sync();
            asks.flushall();
            Drive.equal(asks.set("k", "v", SetArgs.Builder.ex(100)), "OK");
            Drive.equal(asks.get("k"), "v");
            Drive.isTrue(asks.ttl("k") > 90);
            Drive.equal(asks.set("k", "w", SetArgs.Builder.nx()), null);
            Drive.equal(asks.sadd("s", "a", "b", "c"), 3L);
            Drive.equal(asks.sadd("t", "b", "c", "d"), 3L);
            Drive.equal(asks.sinter("s", "t"), Set.of("b", "c"));
            Drive.equal(asks.smismember("s", "a", "x"), List.of(true, false));
            Drive.equal(asks.incrbyfloat("f", 1.5), 1.5);
            Drive.fails("WRONGTYPE", () -> asks.incr("s"));
            byte[] key = Arrays.copyOf(Drive.everyByte(), 256);
            binary.sync().set(key, Drive.everyByte());
            Drive.isTrue(Arrays.equals(binary.sync().get(key), Drive.everyByte()));
        }
    }

    static void pools() throws Exception {
        var config = new GenericObjectPoolConfig<StatefulRedisConnection<String, String>>();
        config.setMaxTotal(8);
        try (var pool = ConnectionPoolSupport.createGenericObjectPool(WithLettuce::connect, config)) {
            IntStream.range(0, 400).parallel().forEach(n -> {
                try (var connection = pool.borrowObject()) {
                    connection.sync().incr("count");
                } catch (Exception error) {
                    throw new AssertionError(error);
                }
            });
            try (var connection = pool.borrowObject()) {
                Drive.equal(connection.sync().get("count"), "400");
            }
        }
    }

    static void pipelines() throws Exception {
        try (var connection = connect()) {
            connection.setAutoFlushCommands(false);
            RedisAsyncCommands<String, String> asks = connection.async();
            List<RedisFuture<Long>> replies = new ArrayList<>();
            for (int n = 0; n < 1000; n++) replies.add(asks.incr("n"));
            connection.flushCommands();
            Drive.isTrue(LettuceFutures.awaitAll(Duration.ofSeconds(20), replies.toArray(new RedisFuture[0])));
            Drive.equal(replies.get(999).get(), 1000L);
        }
    }

    static void transactions() {
        try (var connection = connect(); var other = connect()) {
            RedisCommands<String, String> asks = connection.sync();
            for (boolean disturbed : new boolean[] {true, false}) {
                asks.watch("w");
                if (disturbed) other.sync().set("w", "5");
                asks.multi();
                asks.incr("w");
                asks.get("w");
                TransactionResult replies = asks.exec();
                Drive.equal(replies.wasDiscarded(), disturbed);
                if (!disturbed) Drive.equal(replies.stream().toList(), List.of(6L, "6"));
            }
        }
    }

    static void scans() {
        try (var connection = connect()) {
            RedisCommands<String, String> asks = connection.sync();
            asks.flushall();
            for (int n = 0; n < 500; n++) {
                asks.set("key:" + n, "x");
                asks.sadd("big", "" + n);
            }
            Set<String> keys = new HashSet<>();
            ScanIterator.scan(asks, ScanArgs.Builder.matches("key:*").limit(100)).forEachRemaining(keys::add);
            Drive.equal(keys.size(), 500);
            Set<String> members = new HashSet<>();
            ScanIterator.sscan(asks, "big", ScanArgs.Builder.limit(50)).forEachRemaining(members::add);
            Drive.equal(members.size(), 500);
        }
    }

    /** Notes what the connection hears on the channel "news" and the pattern "n*". */
    static LinkedBlockingQueue<String> listen(StatefulRedisPubSubConnection<String, String> reader) {
        LinkedBlockingQueue<String> heard = new LinkedBlockingQueue<>();
        reader.addListener(new RedisPubSubAdapter<>() {
            @Override
            public void message(String channel, String text) {
                heard.add(channel + " " + text);
            }

            @Override
            public void message(String pattern, String channel, String text) {
                heard.add(pattern + " " + channel + " " + text);
            }
        });
        reader.sync().subscribe("news");
        reader.sync().psubscribe("n*");
        return heard;
    }

    static void messages() throws Exception {
        try (var reader = client.connectPubSub(); var connection = connect()) {
            LinkedBlockingQueue<String> heard = listen(reader);
            Drive.equal(connection.sync().publish("news", "hello"), 2L);
            Set<String> both = new HashSet<>();
            for (int n = 0; n < 2; n++) both.add(heard.poll(20, TimeUnit.SECONDS));
            Drive.equal(both, Set.of("news hello", "n* news hello"));
            if (Drive.protocol == 3) Drive.equal(reader.sync().get("none"), null);
        }
    }

    static void startingAgain() throws Exception {
        try (var reader = client.connectPubSub(); var connection = connect()) {
            LinkedBlockingQueue<String> heard = listen(reader);
            connection.sync().set("kept", "1");
            Drive.restart();
            Drive.equal(connection.sync().get("kept"), "1");
            Drive.until("the subscriptions", () -> connection.sync().publish("news", "again") == 2);
            Drive.until("the message", () -> "n* news again".equals(heard.poll()));
        }
    }

    /** A value comes from the client's memory until another client writes it. */
    static void cached() throws Exception {
        Map<String, String> memory = new ConcurrentHashMap<>();
        try (var connection = connect(); var other = connect();
            var cache = ClientSideCaching.enable(CacheAccessor.forMap(memory), connection, TrackingArgs.Builder.enabled())) {
            other.sync().set("cached", "1");
            Drive.equal(cache.get("cached"), "1");
            Drive.equal(memory, Map.of("cached", "1"));
            for (int n = 0; n < 50; n++) {
                String value = "" + n;
                other.sync().set("cached", value);
                Drive.until("the new value", () -> value.equals(cache.get("cached")));
            }
            Drive.equal(memory.size(), 1);
            other.sync().del("cached");
            Drive.until("no value", () -> memory.isEmpty());
        }
    }

    public static void main(String[] args) {
        Drive.begin("lettuce", args);
        ClientResources resources = ClientResources.builder().reconnectDelay(Delay.constant(Duration.ofMillis(50))).build();
        client = RedisClient.create(resources, address().withPassword(Drive.password.toCharArray()).build());
        ProtocolVersion version = Drive.protocol == 3 ? ProtocolVersion.RESP3 : ProtocolVersion.RESP2;
        client.setOptions(ClientOptions.builder().protocolVersion(version).build());
        Drive.step("names", WithLettuce::names);
        Drive.step("values", WithLettuce::values);
        Drive.step("pools", WithLettuce::pools);
        Drive.step("pipelines", WithLettuce::pipelines);
        Drive.step("transactions", WithLettuce::transactions);
        Drive.step("scans", WithLettuce::scans);
        Drive.step("messages", WithLettuce::messages);
        if (Drive.protocol == 3) Drive.step("cached", WithLettuce::cached);
        Drive.step("starting_again", WithLettuce::startingAgain);
        Runtime.getRuntime().halt(0);
    }
}
