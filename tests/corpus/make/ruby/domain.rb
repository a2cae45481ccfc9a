require "json"
require "net/http"
require "date"

module Harbour
  class ShipMissing < StandardError; end
  class BookingFailed < StandardError; end

  module Ships
    def self.find(data)
      raise ShipMissing, "ship #{data['imo']} (#{data['name'].inspect}) not found"
    end

    def self.captain(data)
      data["captain"].name
    end

    def self.owner(data)
      data["owner"].name
    end

    def self.berth(data)
      data.fetch("berth")
    end

    def self.pier(data)
      data.fetch("pier")
    end

    def self.draught(data)
      Integer(data["draught"])
    end

    def self.share(data)
      data["tons"] / data["parts"]
    end

    def self.load(data)
      data["tons"] + data["more"]
    end

    def self.inspect_cargo(data)
      Object.new.unload(data["tons"])
    end

    def self.close(_data)
      raise ArgumentError
    end

    def self.arrival(data)
      Date.parse(data["arrival"])
    end

    def self.papers(data)
      File.read("/srv/papers/#{data['file']}.pdf")
    end

    def self.deep(data)
      deep(data) + 1
    end
  end

  module Remote
    def self.manifest(data)
      JSON.parse(data["json"])
    end

    def self.weather(data)
      Net::HTTP.get_response(URI("#{ENV['GATEWAY']}/#{data['way']}/weather/#{data['place']}")).value
    end

    def self.tide(data)
      Net::HTTP.get(URI("http://127.0.0.1:#{data['port']}/tide"))
    end

    def self.book(data)
      data["port"] ? tide(data) : Ships.berth(data)
    rescue SystemCallError, KeyError
      raise BookingFailed, "booking #{data['booking']} failed"
    end
  end
end
