import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.redisson.Redisson;
import org.redisson.api.RBlockingQueue;
import org.redisson.api.RBucket;
import org.redisson.api.RDelayedQueue;
import org.redisson.api.RList;
import org.redisson.api.RLock;
import org.redisson.api.RMap;
import org.redisson.api.RMapCache;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RQueue;
import org.redisson.api.RRateLimiter;
import org.redisson.api.RReadWriteLock;
import org.redisson.api.RScoredSortedSet;
import org.redisson.api.RSemaphore;
import org.redisson.api.RateType;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.IntegerCodec;
import org.redisson.client.codec.StringCodec;
import org.redisson.codec.CompositeCodec;
import org.redisson.config.Config;
import org.redisson.config.Protocol;

/** An application's use of what redisson does by scripts, of two instances that know nothing of each other. */
final class ScriptedRedisson extends Program {
    /** Renewed every third of it. */
    private static final long WATCHDOG = 5000;
    private static final RedissonClient[] clients = new RedissonClient[2];

    /** With RESP3 by the scripts' digests, with RESP2 by their texts. */
    static RedissonClient connect() {
        Config config = new Config();
        config.setProtocol(protocol == 3 ? Protocol.RESP3 : Protocol.RESP2).setUseScriptCache(protocol == 3);
        config.setCodec(StringCodec.INSTANCE).setPassword(password).setLockWatchdogTimeout(WATCHDOG);
        config.useSingleServer().setAddress("redis://127.0.0.1:" + port).setConnectionPoolSize(16).setConnectionMinimumIdleSize(2)
            .setSubscriptionConnectionMinimumIdleSize(1).setRetryAttempts(50);
        return Redisson.create(config);
    }

    static RedissonClient client(int n) {
        return clients[n % clients.length];
    }

    /** A counter that is read and then written, by locks of all kinds. */
    static void exclusion() throws Exception {
        exclusion("lock", n -> client(n).getLock("lock"));
        exclusion("fair", n -> client(n).getFairLock("fair"));
        exclusion("write", n -> client(n).getReadWriteLock("write").writeLock());
    }

    interface Locks {
        RLock get(int n);
    }

    private static void exclusion(String name, Locks locks) throws Exception {
        AtomicInteger inside = new AtomicInteger();
        parallel(n -> {
            RBucket<Integer> counter = client(n).getBucket(name + ":counter", IntegerCodec.INSTANCE);
            for (int times = 0; times < 15; times++) {
                RLock lock = locks.get(n);
                lock.lock();
                equal(inside.incrementAndGet(), 1);
                Integer seen = counter.get();
                counter.set(seen == null ? 1 : seen + 1);
                inside.decrementAndGet();
                lock.unlock();
            }
        });
        equal(clients[0].getBucket(name + ":counter", IntegerCodec.INSTANCE).get(), THREADS * 15);
        isTrue(!locks.get(0).isLocked());
    }

    static void leases() throws Exception {
        RLock lock = clients[0].getLock("lease");
        RLock other = clients[1].getLock("lease");
        isTrue(lock.tryLock(0, 60, TimeUnit.SECONDS) && lock.tryLock(0, 60, TimeUnit.SECONDS));
        equal(lock.getHoldCount(), 2);
        isTrue(!other.tryLock() && !other.tryLock(100, TimeUnit.MILLISECONDS));
        fails("not locked by current thread", () -> {
            other.unlock();
            return "unlocked";
        });
        lock.unlock();
        isTrue(lock.isHeldByCurrentThread() && !other.isHeldByCurrentThread() && other.isLocked());
        equal(waits(() -> other.tryLock(20, 1, TimeUnit.SECONDS), lock::unlock), true);
        // The waiting thread's lock ends by itself.
        isTrue(lock.tryLock(20, 60, TimeUnit.SECONDS));
        isTrue(lock.forceUnlock() && !lock.isLocked());
        RReadWriteLock both = clients[0].getReadWriteLock("both");
        RReadWriteLock others = clients[1].getReadWriteLock("both");
        both.readLock().lock();
        isTrue(others.readLock().tryLock() && !others.writeLock().tryLock());
        others.readLock().unlock();
        both.readLock().unlock();
        isTrue(others.writeLock().tryLock() && !both.readLock().tryLock());
        others.writeLock().unlock();
    }

    /** A lock without a lease lives as long as its holder. */
    static void watchdog() throws Exception {
        RLock lock = clients[0].getLock("watched");
        lock.lock();
        for (int n = 0; n < 10; n++) {
            Thread.sleep(WATCHDOG / 6);
            isTrue(lock.remainTimeToLive() > 0 && !clients[1].getLock("watched").tryLock());
        }
        lock.unlock();
        RedissonClient dies = connect();
        dies.getLock("watched").lock();
        dies.shutdown(0, 0, TimeUnit.SECONDS);
        isTrue(!lock.tryLock());
        isTrue(lock.tryLock(20, TimeUnit.SECONDS));
        lock.unlock();
    }

    static void maps() throws Exception {
        RMap<String, String> map = clients[0].getMap("map");
        equal(Arrays.asList(map.put("a", "1"), map.put("a", "2"), map.putIfAbsent("a", "3"), map.putIfAbsent("b", "4")),
            Arrays.asList(null, "1", "2", null));
        isTrue(map.replace("a", "2", "5") && !map.replace("a", "2", "6") && !map.remove("a", "2"));
        equal(Arrays.asList(map.replace("a", "7"), map.replace("none", "8"), map.remove("a"), map.remove("a")),
            Arrays.asList("5", null, "7", null));
        isTrue(map.containsValue("4") && !map.containsValue("7"));
        isTrue(map.fastReplace("b", "9") && !map.fastReplace("none", "9") && map.fastPutIfExists("b", "8"));
        equal(map.readAllMap(), Map.of("b", "8"));
        RMap<String, Integer> sums = clients[0].getMap("sums", new CompositeCodec(StringCodec.INSTANCE, IntegerCodec.INSTANCE));
        parallel(n -> {
            for (int times = 0; times < 25; times++) sums.merge("sum", 1, Integer::sum);
        });
        equal(sums.get("sum"), THREADS * 25);
        RMapCache<String, String> cache = clients[0].getMapCache("cache");
        equal(cache.put("short", "1", 500, TimeUnit.MILLISECONDS), null);
        equal(cache.put("long", "2", 500, TimeUnit.SECONDS, 400, TimeUnit.SECONDS), null);
        until("an expired entry", () -> cache.get("short") == null);
        equal(cache.readAllMap(), Map.of("long", "2"));
        long left = cache.remainTimeToLive("long");
        isTrue(left > 300_000 && left <= 500_000);
    }

    static void lists() throws Exception {
        RList<String> list = clients[0].getList("list");
        list.addAll(List.of("a", "b", "c", "b"));
        equal(list.set(1, "x"), "b");
        equal(List.of(list.indexOf("b"), list.indexOf("none"), list.lastIndexOf("c")), List.of(3, -1, 2));
        isTrue(list.containsAll(List.of("a", "c")) && list.removeAll(List.of("a", "none")));
        list.fastRemove(0);
        equal(list.readAll(), List.of("c", "b"));
        RQueue<String> queue = clients[0].getQueue("list");
        equal(queue.poll(5), List.of("c", "b"));
        RScoredSortedSet<String> board = clients[0].getScoredSortedSet("board");
        equal(List.of(board.addAndGetRank(5.5, "a"), board.addAndGetRank(2, "b"), board.addScoreAndGetRank("b", 4)), List.of(0, 0, 1));
        equal(board.getScore(Arrays.asList("a", "none", "b")), Arrays.asList(5.5, null, 6.0));
        isTrue(board.replace("a", "c") && board.containsAll(List.of("b", "c")) && board.retainAll(List.of("c")));
        equal(board.pollFirst(), "c");
        RBlockingQueue<String> due = clients[1].getBlockingQueue("due");
        long since = System.nanoTime();
        RDelayedQueue<String> delayed = clients[0].getDelayedQueue(clients[0].getBlockingQueue("due"));
        delayed.offer("second", 1200, TimeUnit.MILLISECONDS);
        delayed.offer("first", 600, TimeUnit.MILLISECONDS);
        equal(due.poll(20, TimeUnit.SECONDS), "first");
        isTrue(System.nanoTime() - since >= 600_000_000L);
        equal(due.poll(20, TimeUnit.SECONDS), "second");
        isTrue(System.nanoTime() - since >= 1_200_000_000L);
        delayed.destroy();
    }

    /** Of 200 calls exactly 50 pass, and with the next interval as many again. */
    static void limits() throws Exception {
        isTrue(clients[0].getRateLimiter("day").trySetRate(RateType.OVERALL, 50, Duration.ofDays(1)));
        isTrue(!clients[1].getRateLimiter("day").trySetRate(RateType.OVERALL, 70, Duration.ofDays(1)));
        AtomicInteger passed = new AtomicInteger();
        parallel(n -> {
            RRateLimiter limiter = client(n).getRateLimiter("day");
            for (int times = 0; times < 25; times++) if (limiter.tryAcquire()) passed.incrementAndGet();
        });
        equal(passed.get(), 50);
        equal(clients[1].getRateLimiter("day").availablePermits(), 0L);
        RRateLimiter second = clients[0].getRateLimiter("second");
        isTrue(second.trySetRate(RateType.OVERALL, 5, Duration.ofSeconds(1)));
        long since = System.nanoTime();
        for (int n = 0; n < 11; n++) second.acquire();
        isTrue(System.nanoTime() - since > 1_900_000_000L);
    }

    static void semaphores() throws Exception {
        isTrue(clients[0].getSemaphore("three").trySetPermits(3) && !clients[1].getSemaphore("three").trySetPermits(9));
        AtomicInteger inside = new AtomicInteger();
        AtomicInteger most = new AtomicInteger();
        parallel(n -> {
            RSemaphore semaphore = client(n).getSemaphore("three");
            for (int times = 0; times < 10; times++) {
                semaphore.acquire();
                most.accumulateAndGet(inside.incrementAndGet(), Math::max);
                Thread.sleep(5);
                inside.decrementAndGet();
                semaphore.release();
            }
        });
        isTrue(most.get() <= 3);
        equal(clients[1].getSemaphore("three").availablePermits(), 3);
        RSemaphore semaphore = clients[0].getSemaphore("three");
        isTrue(semaphore.tryAcquire(2) && !semaphore.tryAcquire(2));
        equal(waits(() -> clients[1].getSemaphore("three").tryAcquire(3, 20, TimeUnit.SECONDS), () -> semaphore.release(2)), true);
        equal(semaphore.drainPermits(), 0);
        RPermitExpirableSemaphore leased = clients[0].getPermitExpirableSemaphore("leased");
        isTrue(leased.trySetPermits(1));
        String first = leased.tryAcquire(0, 500, TimeUnit.MILLISECONDS);
        String second = leased.tryAcquire(20, 60, TimeUnit.SECONDS);
        isTrue(first != null && second != null && !leased.tryRelease(first) && leased.tryRelease(second));
        equal(leased.availablePermits(), 1);
        isTrue(clients[0].getCountDownLatch("latch").trySetCount(2));
        equal(waits(() -> clients[1].getCountDownLatch("latch").await(20, TimeUnit.SECONDS), () -> {
            for (RedissonClient client : clients) client.getCountDownLatch("latch").countDown();
        }), true);
    }

    /** A lock and what was taken outlive the server, which has forgotten the scripts; those who wait do not miss the unlocking. */
    static void startingAgain() throws Exception {
        RLock lock = clients[0].getLock("kept");
        lock.lock(300, TimeUnit.SECONDS);
        RRateLimiter limiter = clients[0].getRateLimiter("kept:limit");
        isTrue(limiter.trySetRate(RateType.OVERALL, 50, Duration.ofDays(1)) && limiter.tryAcquire(30));
        restart();
        until("an answer", () -> lock.isHeldByCurrentThread());
        equal(limiter.availablePermits(), 20L);
        isTrue(!limiter.tryAcquire(21) && limiter.tryAcquire(20));
        RLock other = clients[1].getLock("kept");
        isTrue(!other.tryLock());
        equal(waits(() -> other.tryLock(20, 60, TimeUnit.SECONDS), lock::unlock), true);
    }

    public static void main(String[] args) {
        begin("redisson's scripts", args);
        for (int n = 0; n < clients.length; n++) clients[n] = connect();
        step("exclusion", ScriptedRedisson::exclusion);
        step("leases", ScriptedRedisson::leases);
        step("watchdog", ScriptedRedisson::watchdog);
        step("maps", ScriptedRedisson::maps);
        step("lists", ScriptedRedisson::lists);
        step("limits", ScriptedRedisson::limits);
        step("semaphores", ScriptedRedisson::semaphores);
        step("starting_again", ScriptedRedisson::startingAgain);
        succeed();
    }
}
