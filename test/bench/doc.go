// Package bench measures a hub, a sandbox cluster and an agent as a user would run them, and a hub with simulated fleets.
// `make bench` runs the one and writes bench.json, `make bench-fleet` the other and writes bench-fleet.json; both print a
// table. They assert nothing about time: figures depend on the machine, which is written beside them.
package bench
