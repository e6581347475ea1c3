// Package bench measures a hub, a sandbox cluster and an agent as a user would run them. `make bench` runs it, prints a
// table and writes bench.json. It asserts nothing about time: figures depend on the machine, which is written beside them.
package bench
