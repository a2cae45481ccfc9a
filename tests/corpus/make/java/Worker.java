package com.example.freight;

import com.rabbitmq.client.*;
import java.io.*;
import java.net.*;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.util.*;
import java.util.concurrent.*;

/** The Java client alone; what failed is published to an error queue, under the names that Spring uses. */
public class Worker {

    static final String GATEWAY = System.getenv("GATEWAY");
    static final int RELEASE = Integer.parseInt(System.getenv("RELEASE"));
    static final Random CHANCE = new Random();

    static class FreightException extends RuntimeException {
        FreightException(String message, Throwable cause) {
            super(message, cause);
        }
    }

    static class TruckMissingException extends Exception {
        TruckMissingException(String message) {
            super(message);
        }
    }

    record Customer(String name, String country) {}

    interface Handler {
        void handle(Map<String, String> data) throws Exception;
    }

    static class Tariffs {
        static int weight(Map<String, String> data) {
            return Integer.parseInt(data.get("weight"));
        }

        static int length(Map<String, String> data) {
            return Integer.parseInt(data.get("length"));
        }

        static String country(Map<String, String> data) {
            Customer customer = find(data.get("customer"));
            return customer.country().toUpperCase();
        }

        static String greeting(Map<String, String> data) {
            Customer customer = find(data.get("customer"));
            return "Dear " + customer.name();
        }

        static Customer find(String number) {
            return null;
        }

        static int share(Map<String, String> data) {
            return Integer.parseInt(data.get("total")) / Integer.parseInt(data.get("parts"));
        }

        static long sum(Map<String, String> data) {
            return List.of(data.get("amounts").split(",")).stream().mapToLong(Long::parseLong).sum();
        }

        static int depth(Map<String, String> data) {
            return 1 + depth(data);
        }
    }

    static class Trucks {
        static void find(Map<String, String> data) throws TruckMissingException {
            throw new TruckMissingException("truck " + data.get("plate") + " not found at " + data.get("place"));
        }

        static void park(Map<String, String> data) {
            if (!data.containsKey("place")) {
                throw new IllegalStateException();
            }
        }

        static Object cast(Map<String, String> data) {
            Object value = data.get("plate");
            return (Integer) value;
        }

        static String third(Map<String, String> data) {
            return data.get("route").split("-")[2];
        }

        static String route(Map<String, String> data) {
            return Optional.ofNullable(data.get("route")).orElseThrow();
        }
    }

    static class Http {
        static void connect(Map<String, String> data) throws IOException {
            try (Socket socket = new Socket()) {
                socket.connect(new InetSocketAddress("127.0.0.1", Integer.parseInt(data.get("port"))), 500);
            }
        }

        static String get(String url) throws IOException {
            HttpURLConnection connection = (HttpURLConnection) new URL(url).openConnection();
            connection.setReadTimeout(300);
            try (InputStream in = connection.getInputStream()) {
                return new String(in.readAllBytes(), StandardCharsets.UTF_8);
            }
        }

        static void position(Map<String, String> data) throws IOException {
            get(GATEWAY + "/" + data.get("way") + "/positions/" + data.get("truck"));
        }

        static void fuel(Map<String, String> data) throws IOException {
            get(GATEWAY + "/" + data.get("way") + "/fuel/" + data.get("truck"));
        }

        static void book(Map<String, String> data) {
            try {
                if (data.containsKey("port")) {
                    connect(data);
                } else {
                    Tariffs.weight(data);
                }
            } catch (Exception error) {
                throw new FreightException("booking " + data.get("booking") + " failed", error);
            }
        }

        static void later(Map<String, String> data) throws Exception {
            ExecutorService pool = Executors.newSingleThreadExecutor();
            try {
                pool.submit(() -> Tariffs.country(data)).get();
            } finally {
                pool.shutdown();
            }
        }
    }

    static final Map<String, Handler> HANDLERS = new LinkedHashMap<>();
    static final Map<String, String> TYPES = new LinkedHashMap<>();
    static final Map<String, String> WHY = new LinkedHashMap<>();
    static final Map<String, Callable<Map<String, String>>> MAKE = new LinkedHashMap<>();

    static String number() {
        return String.valueOf(1000 + CHANCE.nextInt(800000));
    }

    static String any(String... values) {
        return values[CHANCE.nextInt(values.length)];
    }

    static void add(String name, String type, Handler handler, Callable<Map<String, String>> make, String why) {
        HANDLERS.put(type, handler);
        TYPES.put(name, type);
        MAKE.put(name, make);
        WHY.put(name, why);
    }

    static {
        add("weight-no-number", "Tariffs.weight", Tariffs::weight, () -> Map.of("weight", any("12kg", "heavy", "1.5")), "NumberFormatException of the weight");
        add("length-no-number", "Tariffs.length", Tariffs::length, () -> Map.of("length", any("12m", "long", "1.5")), "NumberFormatException in another function: apart");
        add("country-of-nobody", "Tariffs.country", Tariffs::country, () -> Map.of("customer", number()), "a NullPointerException with the JVM's own message");
        add("greeting-of-nobody", "Tariffs.greeting", Tariffs::greeting, () -> Map.of("customer", number()), "a NullPointerException elsewhere: apart");
        add("share-by-nothing", "Tariffs.share", Tariffs::share, () -> Map.of("total", number(), "parts", "0"), "ArithmeticException: / by zero");
        add("amount-no-number", "Tariffs.sum", Tariffs::sum, () -> Map.of("amounts", "1,2," + any("x", "3.5", "EUR 9")), "NumberFormatException inside a stream");
        add("depth-without-end", "Tariffs.depth", Tariffs::depth, () -> Map.of("number", number()), "StackOverflowError, cut off by the JVM");
        add("truck-missing", "Trucks.find", Trucks::find, () -> Map.of("plate", "B-" + number(), "place", any("Köln", "Zürich", "東京")), "a checked exception with values");
        add("place-missing", "Trucks.park", Trucks::park, () -> Map.of("number", number()), "IllegalStateException without a message");
        add("plate-no-integer", "Trucks.cast", Trucks::cast, () -> Map.of("plate", number()), "ClassCastException, whose message names loaders");
        add("route-too-short", "Trucks.third", Trucks::third, () -> Map.of("route", any("A-B", "X-Y")), "ArrayIndexOutOfBoundsException");
        add("route-missing", "Trucks.route", Trucks::route, () -> Map.of("number", number()), "NoSuchElementException: No value present");
        add("connection-refused", "Http.connect", Http::connect, () -> Map.of("port", String.valueOf(2000 + CHANCE.nextInt(7000))), "ConnectException; the port is nowhere");
        add("position-503", "Http.position", Http::position, () -> Map.of("way", "503", "truck", number()), "IOException: Server returned HTTP response code: 503 for URL");
        add("position-404", "Http.position", Http::position, () -> Map.of("way", "404", "truck", number()), "FileNotFoundException of a URL: another cause");
        add("position-slow", "Http.position", Http::position, () -> Map.of("way", "slow", "truck", number()), "SocketTimeoutException: Read timed out");
        add("fuel-503", "Http.fuel", Http::fuel, () -> Map.of("way", "503", "truck", number()), "the same 503 by the same helper for another function");
        add("booking-refused", "Http.book", Http::book, () -> Map.of("booking", number(), "port", String.valueOf(2000 + CHANCE.nextInt(7000))), "FreightException caused by a refused connection");
        add("booking-weightless", "Http.book", Http::book, () -> Map.of("booking", number(), "weight", any("?", "x1")), "the same FreightException caused by a number that is none: apart");
        add("later-of-nobody", "Http.later", Http::later, () -> Map.of("customer", number()), "ExecutionException around a NullPointerException, from another thread");
    }

    static void sent(String key, String expect, String why) throws IOException {
        String line = String.format("{\"key\": \"%s\", \"expect\": \"%s\", \"why\": \"%s\", \"release\": %d, \"arguable\": \"\"}%n", key, expect, why, RELEASE);
        Files.writeString(Path.of(System.getenv("SENT")), line, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
    }

    static String stack(Throwable error) {
        StringWriter text = new StringWriter();
        error.printStackTrace(new PrintWriter(text));
        return text.toString();
    }

    public static void main(String[] arguments) throws Exception {
        ConnectionFactory factory = new ConnectionFactory();
        factory.setUri(System.getenv("AMQP_URL"));
        Channel channel = factory.newConnection().createChannel();
        channel.queueDeclare("freight.errors", true, false, false, null);
        for (String queue : List.of("freight.bookings", "freight.night")) {
            channel.queueDeclare(queue, true, false, false, null);
            channel.basicConsume(queue, false, new DefaultConsumer(channel) {
                @Override
                public void handleDelivery(String tag, Envelope envelope, AMQP.BasicProperties properties, byte[] body) throws IOException {
                    Map<String, String> data = new HashMap<>();
                    for (String part : new String(body, StandardCharsets.UTF_8).split("\n")) {
                        String[] pair = part.split("=", 2);
                        data.put(pair[0], pair[1]);
                    }
                    try {
                        HANDLERS.get(properties.getType()).handle(data);
                    } catch (Throwable error) {
                        Map<String, Object> headers = new HashMap<>();
                        headers.put("x-exception-stacktrace", stack(error));
                        headers.put("x-exception-message", error.getMessage());
                        headers.put("x-original-exchange", envelope.getExchange());
                        headers.put("x-original-routingKey", envelope.getRoutingKey());
                        getChannel().basicPublish("", "freight.errors", properties.builder().headers(headers).build(), body);
                    }
                    getChannel().basicAck(envelope.getDeliveryTag(), false);
                }
            });
        }
        Channel publisher = factory.newConnection().createChannel();
        for (String queue : List.of("freight.bookings", "freight.night")) {
            for (String name : TYPES.keySet()) {
                if (queue.equals("freight.night") && !List.of("truck-missing", "position-503").contains(name)) {
                    continue;
                }
                for (int n = 0; n < 3 - RELEASE; n++) {
                    String key = UUID.randomUUID().toString();
                    sent(key, queue + "/" + name, WHY.get(name));
                    StringJoiner body = new StringJoiner("\n");
                    MAKE.get(name).call().forEach((k, v) -> body.add(k + "=" + v));
                    publisher.basicPublish("", queue, new AMQP.BasicProperties.Builder().messageId(key).type(TYPES.get(name)).deliveryMode(2).build(), body.toString().getBytes(StandardCharsets.UTF_8));
                }
            }
        }
    }
}
