import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.FutureTask;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.function.IntConsumer;

/** Shared by the Java programs: their arguments PORT PASSWORD PROTOCOL CONTROL, how they check a case, and the restart of the server. */
abstract class Program {
    interface Body {
        void run() throws Exception;
    }

    interface Numbered {
        void run(int n) throws Exception;
    }

    /** Of {@link #parallel}. */
    static final int THREADS = 8;

    static int port;
    static String password;
    static int protocol;
    private static Path control;
    private static String library;

    static void begin(String name, String[] args) {
        library = name;
        port = Integer.parseInt(args[0]);
        password = args[1];
        protocol = Integer.parseInt(args[2]);
        control = Path.of(args[3]);
        Thread.setDefaultUncaughtExceptionHandler((thread, error) -> end(error));
    }

    /** Ends the program, all of whose cases have run. */
    static void succeed() {
        Runtime.getRuntime().halt(0);
    }

    private static void end(Throwable error) {
        error.printStackTrace();
        Runtime.getRuntime().halt(1);
    }

    static void step(String name, Body body) {
        try {
            body.run();
        } catch (Throwable error) {
            end(error);
        }
        System.out.println(library + " RESP" + protocol + ": " + name);
    }

    static void equal(Object seen, Object expected) {
        if (!Objects.equals(seen, expected)) throw new AssertionError(seen + ", expected " + expected);
    }

    static void isTrue(boolean holds) {
        equal(holds, true);
    }

    /** The call must fail, with the text in its error or in one of that error's causes. */
    static void fails(String text, Callable<?> call) {
        Object value;
        try {
            value = call.call();
        } catch (Throwable error) {
            for (Throwable cause = error; cause != null; cause = cause.getCause()) {
                if (String.valueOf(cause.getMessage()).contains(text)) return;
            }
            throw new AssertionError("not " + text, error);
        }
        throw new AssertionError(value + ", expected " + text);
    }

    /** Waits until the condition holds, for at most 20 s; a failing call counts as false. */
    static void until(String what, Callable<Boolean> holds) throws Exception {
        long end = System.nanoTime() + 20_000_000_000L;
        Exception last = null;
        while (System.nanoTime() < end) {
            try {
                if (holds.call()) return;
            } catch (Exception error) {
                last = error;
            }
            Thread.sleep(20);
        }
        throw new AssertionError("never: " + what, last);
    }

    /** What a call that blocks in another thread returns once {@code serve} has run, 100 ms later. */
    static <T> T waits(Callable<T> call, Body serve) throws Exception {
        FutureTask<T> waiting = new FutureTask<>(call);
        new Thread(waiting).start();
        Thread.sleep(100);
        isTrue(!waiting.isDone());
        serve.run();
        return waiting.get(20, TimeUnit.SECONDS);
    }

    /** Runs the body in as many threads, each with its number. */
    static void parallel(Numbered body) throws Exception {
        List<FutureTask<Void>> tasks = new ArrayList<>();
        for (int n = 0; n < THREADS; n++) {
            int number = n;
            tasks.add(new FutureTask<>(() -> {
                body.run(number);
                return null;
            }));
            new Thread(tasks.get(n)).start();
        }
        for (FutureTask<Void> task : tasks) task.get(200, TimeUnit.SECONDS);
    }

    static void restart() throws Exception {
        Files.createFile(control.resolve("restart"));
        until("a new server", () -> Files.exists(control.resolve("restarted")));
    }

    /** A scan that finds 500 items, each at least once. */
    static void finds500(Consumer<Set<String>> scan) {
        Set<String> found = new HashSet<>();
        scan.accept(found);
        equal(found.size(), 500);
    }

    static void times500(IntConsumer body) {
        for (int n = 0; n < 500; n++) body.accept(n);
    }

    /** A client's reads follow another one's writes, 50 times. */
    static void follows(Consumer<String> write, Callable<String> read) throws Exception {
        for (int n = 0; n < 50; n++) {
            String value = "" + n;
            write.accept(value);
            until("the new value", () -> value.equals(read.call()));
        }
    }

    /** The messages of the channel "news" and the pattern "n*". */
    static final class Heard {
        private final LinkedBlockingQueue<String> messages = new LinkedBlockingQueue<>();

        void on(String channel, String text) {
            messages.add(channel + " " + text);
        }

        void on(String pattern, String channel, String text) {
            messages.add(pattern + " " + channel + " " + text);
        }

        /** Both copies of a message, in any order, and nothing before them. */
        void both(String text) throws Exception {
            Set<String> both = new HashSet<>();
            for (int n = 0; n < 2; n++) both.add(messages.poll(20, TimeUnit.SECONDS));
            equal(both, Set.of("news " + text, "n* news " + text));
        }

        void atLast(String text) throws Exception {
            until("the message", () -> ("n* news " + text).equals(messages.poll()));
        }
    }

    static byte[] everyByte() {
        byte[] all = new byte[256_000];
        for (int i = 0; i < all.length; i++) all[i] = (byte) i;
        return all;
    }
}
