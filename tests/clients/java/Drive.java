import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Objects;
import java.util.concurrent.Callable;

/** What the Java programs share: their arguments PORT PASSWORD PROTOCOL CONTROL, their cases, and how the server is started again. */
final class Drive {
    interface Body {
        void run() throws Exception;
    }

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

    /** Waits until it holds, 20 s at most; a failing call does not hold. */
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

    static void restart() throws Exception {
        Files.createFile(control.resolve("restart"));
        until("a new server", () -> Files.exists(control.resolve("restarted")));
    }

    static byte[] everyByte() {
        byte[] all = new byte[256_000];
        for (int i = 0; i < all.length; i++) all[i] = (byte) i;
        return all;
    }
}
