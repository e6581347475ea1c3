// Package bench measures a hub, a sandbox cluster and an agent as a user would run them, and a hub with simulated fleets.
// `make bench` runs the one and writes bench.json, `make bench-fleet` and `make bench-fleet-works` the other and write
// bench-fleet.json and bench-fleet-works.json; all print a table. They assert nothing about time: figures depend on the machine, which is
// written next to them.
package bench
