// Package interop tests Capstan with programs and libraries of others: the CloudEvents clients of the SDK of Open Cluster Management, by
// Mosquitto, a broker of MQTT, and by gRPC. It is a module of its own, so that what these require is no requirement of Capstan.
package interop
