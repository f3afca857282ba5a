import io.lettuce.core.ClientOptions;
import io.lettuce.core.protocol.ProtocolVersion;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.Lock;
import java.util.function.Consumer;
import org.springframework.data.redis.connection.RedisStandaloneConfiguration;
import org.springframework.data.redis.connection.lettuce.LettuceClientConfiguration;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.data.redis.core.RedisTemplate;
import org.springframework.data.redis.core.StringRedisTemplate;
import org.springframework.data.redis.core.script.DefaultRedisScript;
import org.springframework.data.redis.core.script.RedisScript;
import org.springframework.data.redis.listener.ChannelTopic;
import org.springframework.data.redis.listener.PatternTopic;
import org.springframework.data.redis.listener.RedisMessageListenerContainer;
import org.springframework.data.redis.serializer.RedisSerializer;
import org.springframework.integration.redis.util.RedisLockRegistry;
import org.springframework.session.FindByIndexNameSessionRepository;
import org.springframework.session.Session;
import org.springframework.session.SessionRepository;
import org.springframework.session.data.redis.RedisIndexedSessionRepository;
import org.springframework.session.data.redis.RedisSessionRepository;
import org.springframework.session.data.redis.config.ConfigureNotifyKeyspaceEventsAction;
import org.springframework.session.events.AbstractSessionEvent;

/** An application's use of Spring: sessions and what happens to them, a script of a template, and locks, which are scripts too. */
final class WithSpring extends Program {
    private static LettuceConnectionFactory connections;
    private static RedisTemplate<String, Object> template;
    private static StringRedisTemplate texts;

    static LettuceConnectionFactory connect() {
        var place = new RedisStandaloneConfiguration("127.0.0.1", port);
        place.setPassword(password);
        ProtocolVersion version = protocol == 3 ? ProtocolVersion.RESP3 : ProtocolVersion.RESP2;
        var options = ClientOptions.builder().protocolVersion(version).build();
        var factory = new LettuceConnectionFactory(place, LettuceClientConfiguration.builder().clientOptions(options).build());
        factory.afterPropertiesSet();
        factory.start();
        return factory;
    }

    /** The template that spring-session's own configuration makes. */
    static RedisTemplate<String, Object> template() {
        RedisTemplate<String, Object> made = new RedisTemplate<>();
        made.setKeySerializer(RedisSerializer.string());
        made.setHashKeySerializer(RedisSerializer.string());
        made.setConnectionFactory(connections);
        made.afterPropertiesSet();
        return made;
    }

    /** The name of a new session. */
    static <S extends Session> String saved(SessionRepository<S> repository, Consumer<Session> change) {
        S session = repository.createSession();
        change.accept(session);
        repository.save(session);
        return session.getId();
    }

    /** What all repositories do: create, change, find, rename and delete. */
    static <S extends Session> void lifeOf(SessionRepository<S> repository) {
        S session = repository.createSession();
        session.setMaxInactiveInterval(Duration.ofMinutes(10));
        session.setAttribute("cart", new ArrayList<>(List.of("tea", 3)));
        session.setAttribute("gone", "x");
        repository.save(session);
        S found = repository.findById(session.getId());
        equal(found.getAttribute("cart"), List.of("tea", 3));
        equal(found.getMaxInactiveInterval(), Duration.ofMinutes(10));
        equal(found.getCreationTime().toEpochMilli(), session.getCreationTime().toEpochMilli());
        found.removeAttribute("gone");
        found.setAttribute("city", "Rome");
        repository.save(found);
        String old = found.getId();
        S again = repository.findById(old);
        equal(again.getAttributeNames(), Set.of("cart", "city"));
        String renamed = again.changeSessionId();
        repository.save(again);
        equal(repository.findById(old), null);
        equal(repository.findById(renamed).getAttribute("city"), "Rome");
        repository.deleteById(renamed);
        equal(repository.findById(renamed), null);
    }

    static void sessions() throws Exception {
        SessionRepository<?> repository = new RedisSessionRepository(template);
        lifeOf(repository);
        equal(template.keys("spring:session:*"), Set.of());
        String id = saved(repository, session -> session.setMaxInactiveInterval(Duration.ofSeconds(1)));
        until("an expired session", () -> repository.findById(id) == null);
        until("no key", () -> template.keys("spring:session:*").isEmpty());
    }

    /** Sessions with an index of their users; created, deleted and expired ones are told to the application. */
    static void events() throws Exception {
        LinkedBlockingQueue<AbstractSessionEvent> events = new LinkedBlockingQueue<>();
        try (var connection = connections.getConnection()) {
            new ConfigureNotifyKeyspaceEventsAction().configure(connection);
        }
        var repository = new RedisIndexedSessionRepository(template);
        repository.setCleanupCron("-");
        repository.setApplicationEventPublisher(event -> events.add((AbstractSessionEvent) event));
        repository.afterPropertiesSet();
        var listener = new RedisMessageListenerContainer();
        listener.setConnectionFactory(connections);
        listener.addMessageListener(repository,
            List.of(new ChannelTopic(repository.getSessionDeletedChannel()), new ChannelTopic(repository.getSessionExpiredChannel())));
        listener.addMessageListener(repository, new PatternTopic(repository.getSessionCreatedChannelPrefix() + "*"));
        listener.afterPropertiesSet();
        listener.start();
        List<String> ids = new ArrayList<>();
        for (int n = 0; n < 3; n++) {
            boolean shortLived = n == 2;
            ids.add(saved(repository, session -> {
                session.setAttribute(FindByIndexNameSessionRepository.PRINCIPAL_NAME_INDEX_NAME, shortLived ? "bob" : "ann");
                session.setMaxInactiveInterval(Duration.ofSeconds(shortLived ? 1 : 600));
            }));
            tells(events, "SessionCreatedEvent", ids.get(n));
        }
        equal(repository.findByPrincipalName("ann").keySet(), Set.copyOf(ids.subList(0, 2)));
        tells(events, "SessionExpiredEvent", ids.get(2));
        equal(repository.findByPrincipalName("bob"), Map.of());
        repository.deleteById(ids.get(0));
        tells(events, "SessionDeletedEvent", ids.get(0));
        equal(repository.findByPrincipalName("ann").keySet(), Set.of(ids.get(1)));
        lifeOf(repository);
        listener.destroy();
        repository.destroy();
    }

    private static void tells(LinkedBlockingQueue<AbstractSessionEvent> events, String name, String id) throws Exception {
        AbstractSessionEvent event = events.poll(20, TimeUnit.SECONDS);
        equal(event.getClass().getSimpleName() + " " + event.getSessionId(), name + " " + id);
    }

    /** A stock of 50, of which 200 calls take one each if there is one. */
    static final String TAKE = "local n = tonumber(redis.call('GET', KEYS[1]) or '0') if n < tonumber(ARGV[1]) then return false end "
        + "redis.call('DECRBY', KEYS[1], ARGV[1]) return n - ARGV[1]";

    static void scripts() throws Exception {
        RedisScript<Long> take = new DefaultRedisScript<>(TAKE, Long.class);
        texts.opsForValue().set("stock", "50");
        Set<Long> left = ConcurrentHashMap.newKeySet();
        AtomicInteger refused = new AtomicInteger();
        parallel(n -> {
            for (int times = 0; times < 25; times++) {
                Long rest = texts.execute(take, List.of("stock"), "1");
                if (rest == null) refused.incrementAndGet();
                else isTrue(left.add(rest));
            }
        });
        equal(left.size(), 50);
        equal(refused.get(), 150);
        equal(texts.opsForValue().get("stock"), "0");
        fails("no number", () -> texts.execute(RedisScript.of("return redis.error_reply('no number')", Long.class), List.of()));
    }

    /** Spring Integration's locks, of two registries that know nothing of each other. */
    static void locks() throws Exception {
        for (var type : RedisLockRegistry.RedisLockType.values()) {
            RedisLockRegistry[] registries = {registry(type), registry(type)};
            texts.opsForValue().set("counter", "0");
            AtomicInteger inside = new AtomicInteger();
            parallel(n -> {
                for (int times = 0; times < 10; times++) {
                    Lock lock = registries[n % 2].obtain("lock");
                    lock.lock();
                    equal(inside.incrementAndGet(), 1);
                    int seen = Integer.parseInt(texts.opsForValue().get("counter"));
                    texts.opsForValue().set("counter", "" + (seen + 1));
                    inside.decrementAndGet();
                    lock.unlock();
                }
            });
            equal(texts.opsForValue().get("counter"), "" + THREADS * 10);
            var lock = registries[0].obtain("lost");
            lock.lock();
            registries[0].renewLock("lost", Duration.ofSeconds(300));
            isTrue(texts.getExpire("locks:lost") > 200);
            isTrue(!registries[1].obtain("lost").tryLock());
            texts.delete("locks:lost");
            isTrue(registries[1].obtain("lost").tryLock());
            fails("due to expiration", () -> {
                lock.unlock();
                return "unlocked";
            });
            registries[1].obtain("lost").unlock();
            equal(texts.hasKey("locks:lost"), false);
            for (var registry : registries) registry.destroy();
        }
    }

    private static RedisLockRegistry registry(RedisLockRegistry.RedisLockType type) {
        var made = new RedisLockRegistry(connections, "locks", 60_000);
        made.setRedisLockType(type);
        made.setIdleBetweenTries(Duration.ofMillis(5));
        return made;
    }

    static void startingAgain() throws Exception {
        SessionRepository<?> repository = new RedisSessionRepository(template);
        String id = saved(repository, session -> session.setAttribute("cart", "tea"));
        RedisScript<Long> take = new DefaultRedisScript<>(TAKE, Long.class);
        texts.opsForValue().set("kept", "9");
        equal(texts.execute(take, List.of("kept"), "2"), 7L);
        restart();
        until("an answer", () -> "tea".equals(repository.findById(id).getAttribute("cart")));
        equal(texts.execute(take, List.of("kept"), "3"), 4L);
    }

    public static void main(String[] args) {
        begin("spring", args);
        connections = connect();
        template = template();
        texts = new StringRedisTemplate(connections);
        step("sessions", WithSpring::sessions);
        step("events", WithSpring::events);
        step("scripts", WithSpring::scripts);
        step("locks", WithSpring::locks);
        step("starting_again", WithSpring::startingAgain);
        succeed();
    }
}
