/** The cases of the programs that show all that a client library does. */
abstract class Drive extends Program {
    abstract void names() throws Exception;

    abstract void values() throws Exception;

    abstract void pools() throws Exception;

    abstract void pipelines() throws Exception;

    abstract void transactions() throws Exception;

    abstract void collections() throws Exception;

    abstract void scans() throws Exception;

    abstract void messages() throws Exception;

    /** In RESP3. */
    abstract void cached() throws Exception;

    abstract void startingAgain() throws Exception;

    /** Runs all cases and ends the program. */
    static void cases(Drive program) {
        step("names", program::names);
        step("values", program::values);
        step("pools", program::pools);
        step("pipelines", program::pipelines);
        step("transactions", program::transactions);
        step("collections", program::collections);
        step("scans", program::scans);
        step("messages", program::messages);
        if (protocol == 3) step("cached", program::cached);
        step("starting_again", program::startingAgain);
        succeed();
    }
}
