import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.redisson.Redisson;
import org.redisson.api.BatchOptions;
import org.redisson.api.RAtomicLong;
import org.redisson.api.RClientSideCaching;
import org.redisson.api.RBatch;
import org.redisson.api.RBucket;
import org.redisson.api.RPatternTopic;
import org.redisson.api.RSet;
import org.redisson.api.RTopic;
import org.redisson.api.RedissonClient;
import org.redisson.api.options.ClientSideCachingOptions;
import org.redisson.api.options.KeysScanOptions;
import org.redisson.client.codec.ByteArrayCodec;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;
import org.redisson.config.Protocol;

/** What an application does with redisson, as far as that needs no scripts: its locks and maps are scripts, its transactions know no WATCH. */
final class WithRedisson {
    private static RedissonClient client;

    static RedissonClient connect(String user, String password, int database, int attempts) {
        Config config = new Config();
        config.setProtocol(Drive.protocol == 3 ? Protocol.RESP3 : Protocol.RESP2);
        config.setCodec(StringCodec.INSTANCE).setUsername(user).setPassword(password);
        config.useSingleServer().setAddress("redis://127.0.0.1:" + Drive.port).setDatabase(database).setClientName("tester")
            .setConnectionPoolSize(8).setConnectionMinimumIdleSize(2).setSubscriptionConnectionMinimumIdleSize(1)
            .setRetryAttempts(attempts);
        return Redisson.create(config);
    }

    static void names() {
        RedissonClient third = connect("default", Drive.password, 3, 1);
        third.getBucket("here").set("x");
        Drive.equal(client.getBucket("here").get(), null);
        third.shutdown(0, 0, TimeUnit.SECONDS);
        Drive.fails("WRONGPASS", () -> connect("default", "wrong", 0, 0));
        Drive.fails("NOAUTH", () -> connect(null, null, 0, 0));
    }

    static void values() {
        client.getKeys().flushall();
        RBucket<String> bucket = client.getBucket("k");
        bucket.set("v", Duration.ofSeconds(100));
        Drive.equal(bucket.get(), "v");
        Drive.isTrue(bucket.remainTimeToLive() > 90_000);
        Drive.equal(bucket.setIfAbsent("w"), false);
        RSet<String> some = client.getSet("s");
        Drive.isTrue(some.addAll(List.of("a", "b", "c")));
        client.getSet("t").addAll(List.of("b", "c", "d"));
        Drive.equal(some.readIntersection("t"), Set.of("b", "c"));
        Drive.isTrue(some.contains("a") && !some.contains("x"));
        Drive.fails("WRONGTYPE", () -> client.getAtomicLong("s").incrementAndGet());
        RBucket<byte[]> bytes = client.getBucket("bytes", ByteArrayCodec.INSTANCE);
        bytes.set(Drive.everyByte());
        Drive.isTrue(java.util.Arrays.equals(bytes.get(), Drive.everyByte()));
    }

    static void pools() {
        RAtomicLong count = client.getAtomicLong("count");
        IntStream.range(0, 400).parallel().forEach(n -> count.incrementAndGet());
        Drive.equal(count.get(), 400L);
    }

    static List<?> increments(BatchOptions.ExecutionMode mode, String key, int times) {
        RBatch batch = client.createBatch(BatchOptions.defaults().executionMode(mode));
        for (int n = 0; n < times; n++) batch.getAtomicLong(key).incrementAndGetAsync();
        return batch.execute().getResponses();
    }

    static void pipelines() {
        Drive.equal(increments(BatchOptions.ExecutionMode.IN_MEMORY, "n", 1000).get(999), 1000L);
    }

    static void transactions() {
        Drive.equal(increments(BatchOptions.ExecutionMode.IN_MEMORY_ATOMIC, "w", 2), List.of(1L, 2L));
        Drive.equal(increments(BatchOptions.ExecutionMode.REDIS_WRITE_ATOMIC, "w", 2), List.of(3L, 4L));
    }

    static void scans() {
        client.getKeys().flushall();
        RSet<String> big = client.getSet("big");
        for (int n = 0; n < 500; n++) {
            client.getBucket("key:" + n).set("x");
            big.add("" + n);
        }
        Set<String> keys = new HashSet<>();
        client.getKeys().getKeys(KeysScanOptions.defaults().pattern("key:*").chunkSize(100)).forEach(keys::add);
        Drive.equal(keys.size(), 500);
        Set<String> members = new HashSet<>();
        big.iterator(50).forEachRemaining(members::add);
        Drive.equal(members.size(), 500);
    }

    static LinkedBlockingQueue<String> listen() {
        LinkedBlockingQueue<String> heard = new LinkedBlockingQueue<>();
        RTopic news = client.getTopic("news");
        news.addListener(String.class, (channel, text) -> heard.add(channel + " " + text));
        RPatternTopic pattern = client.getPatternTopic("n*");
        pattern.addListener(String.class, (matched, channel, text) -> heard.add(matched + " " + channel + " " + text));
        return heard;
    }

    static void messages() throws Exception {
        LinkedBlockingQueue<String> heard = listen();
        Drive.equal(client.getTopic("news").publish("hello"), 2L);
        Set<String> both = new HashSet<>();
        for (int n = 0; n < 2; n++) both.add(heard.poll(20, TimeUnit.SECONDS));
        Drive.equal(both, Set.of("news hello", "n* news hello"));
        client.getTopic("news").removeAllListeners();
        client.getPatternTopic("n*").removeAllListeners();
    }

    static void startingAgain() throws Exception {
        LinkedBlockingQueue<String> heard = listen();
        client.getBucket("kept").set("1");
        Drive.restart();
        Drive.until("an answer", () -> "1".equals(client.getBucket("kept").get()));
        Drive.until("the subscriptions", () -> client.getTopic("news").publish("again") == 2);
        Drive.until("the message", () -> "n* news again".equals(heard.poll()));
    }

    /** A value comes from the client's memory until another client writes it. */
    static void cached() throws Exception {
        RClientSideCaching memory = client.getClientSideCaching(ClientSideCachingOptions.defaults());
        RBucket<String> reads = memory.getBucket("cached");
        RBucket<String> writes = client.getBucket("cached");
        for (int n = 0; n < 50; n++) {
            String value = "" + n;
            writes.set(value);
            Drive.until("the new value", () -> value.equals(reads.get()));
        }
        writes.delete();
        Drive.until("no value", () -> reads.get() == null);
        memory.destroy();
    }

    public static void main(String[] args) {
        Drive.begin("redisson", args);
        client = connect("default", Drive.password, 0, 50);
        Drive.step("names", WithRedisson::names);
        Drive.step("values", WithRedisson::values);
        Drive.step("pools", WithRedisson::pools);
        Drive.step("pipelines", WithRedisson::pipelines);
        Drive.step("transactions", WithRedisson::transactions);
        Drive.step("scans", WithRedisson::scans);
        Drive.step("messages", WithRedisson::messages);
        if (Drive.protocol == 3) Drive.step("cached", WithRedisson::cached);
        Drive.step("starting_again", WithRedisson::startingAgain);
        Runtime.getRuntime().halt(0);
    }
}
