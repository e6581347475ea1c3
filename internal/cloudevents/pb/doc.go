// Package pb has the messages and the service of cloudevents.proto, from which `make proto` makes it.
package pb
