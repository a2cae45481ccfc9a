#!/bin/sh
set -e
jars=$(ls /usr/share/java/amqp-client.jar /usr/share/java/slf4j-api.jar /usr/share/java/slf4j-nop.jar 2>/dev/null | tr '\n' ':')
mkdir -p classes
javac -nowarn -cp "$jars" -d classes Worker.java
exec java -cp "classes:$jars" com.example.freight.Worker
