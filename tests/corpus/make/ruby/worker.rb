# Bunny, and an error queue by hand: what failed is published there with class, message and backtrace.
require "bunny"
require "securerandom"
require "socket"
require_relative "domain"

RELEASE = ENV["RELEASE"].to_i
include Harbour

number = -> { rand(1000..899_999) }
port = -> { rand(2000..9000) }
CASES = [
  ["ship-missing", Ships.method(:find), -> { { imo: number.(), name: %w[Möwe Stern Чайка].sample } }, "an error of its own with values"],
  ["captain-nil", Ships.method(:captain), -> { { imo: number.() } }, "undefined method `name' for nil in Ships.captain"],
  ["owner-nil", Ships.method(:owner), -> { { imo: number.() } }, "the same NoMethodError in Ships.owner: apart"],
  ["berth-missing", Ships.method(:berth), -> { { imo: number.() } }, "KeyError: key not found: berth"],
  ["pier-missing", Ships.method(:pier), -> { { imo: number.() } }, "KeyError of another key in another function"],
  ["draught-no-number", Ships.method(:draught), -> { { draught: ["9,5", "deep", "?"].sample } }, "invalid value for Integer(): whatever it is"],
  ["share-by-zero", Ships.method(:share), -> { { tons: number.(), parts: 0 } }, "divided by 0"],
  ["load-text", Ships.method(:load), -> { { tons: number.(), more: "much" } }, "String can't be coerced into Integer"],
  ["cargo-unloadable", Ships.method(:inspect_cargo), -> { { tons: number.() } }, "NoMethodError with the address of an object"],
  ["close-without-word", Ships.method(:close), -> { { imo: number.() } }, "an error whose message is its class"],
  ["arrival-no-date", Ships.method(:arrival), -> { { arrival: ["soon", "31.31.2026", "?"].sample } }, "invalid date"],
  ["papers-not-there", Ships.method(:papers), -> { { file: SecureRandom.uuid } }, "Errno::ENOENT; a path of its own each time"],
  ["deep-without-end", Ships.method(:deep), -> { { imo: number.() } }, "stack level too deep, ten thousand frames"],
  ["manifest-no-json", Remote.method(:manifest), -> { { json: ["<html>", "{'a'", "x#{number.()}"].sample } }, "JSON::ParserError that quotes what it met"],
  ["weather-503", Remote.method(:weather), -> { { way: "503", place: number.() } }, "Net::HTTPFatalError 503"],
  ["weather-404", Remote.method(:weather), -> { { way: "404", place: number.() } }, "404 from the same line: another cause"],
  ["tide-refused", Remote.method(:tide), -> { { port: port.() } }, "Errno::ECONNREFUSED; the port differs"],
  ["booking-refused", Remote.method(:book), -> { { booking: number.(), port: port.() } }, "BookingFailed caused by a refused connection"],
  ["booking-without-berth", Remote.method(:book), -> { { booking: number.() } }, "the same BookingFailed caused by a missing key"],
].freeze

def cut(lines)
  (lines || []).first(60).join("\n")
end

connection = Bunny.new(ENV["AMQP_URL"], logger: Logger.new(nil))
connection.start
channel = connection.create_channel
errors = channel.queue("harbour.errors", durable: true)
%w[harbour.ships harbour.cargo].each do |name|
  channel.queue(name, durable: true).subscribe(manual_ack: true) do |delivery, properties, body|
    begin
      CASES.assoc(properties.type)[1].call(JSON.parse(body))
    rescue StandardError, SystemStackError => e
      headers = {
        "x-original-queue" => name, "x-error-class" => e.class.name, "x-error-message" => e.message,
        "x-backtrace" => cut(e.backtrace), "x-failed-at" => Time.now.to_s, "x-host" => "#{Socket.gethostname}:#{Process.pid}",
      }
      headers["x-cause"] = "#{e.cause.class}: #{e.cause.message}\n#{cut(e.cause.backtrace)}" if e.cause
      errors.publish(body, headers: headers, message_id: properties.message_id, persistent: true)
    end
    channel.ack(delivery.delivery_tag)
  end
end
publisher = connection.create_channel
{ "harbour.ships" => nil, "harbour.cargo" => %w[ship-missing weather-503] }.each do |queue, names|
  CASES.each do |name, _, make, why|
    next if names && !names.include?(name)

    (3 - RELEASE).times do
      key = SecureRandom.uuid
      File.write(ENV["SENT"], JSON.generate(key: key, expect: "#{queue}/#{name}", why: why, release: RELEASE, arguable: "") + "\n", mode: "a")
      publisher.default_exchange.publish(JSON.generate(make.call), routing_key: queue, message_id: key, type: name)
    end
  end
end
sleep
