// Package interop tests Capstan with programs and libraries of others: agents, controllers and an add-on of Open Cluster Management, the
// CloudEvents clients of its SDK, by gRPC and by a broker of MQTT, and the kinds of Cluster API. It is a module of its own, so
// that what these require is no requirement of Capstan.
//
// The SDK and Capstan have the messages of the same gRPC service, which may be once in a program. Set the environment variable
// GOLANG_PROTOBUF_REGISTRATION_CONFLICT=ignore for these tests, as make test-interop does.
package interop
