// The tools that look at what the programs are made of: known vulnerabilities, licences, and the list of it all.
module github.com/capstan-io/capstan/tools/audit

go 1.26.0

toolchain go1.26.8

tool golang.org/x/vuln/cmd/govulncheck

require (
	github.com/CycloneDX/cyclonedx-go v0.12.0
	github.com/google/licenseclassifier/v2 v2.0.0
	golang.org/x/mod v0.22.0
)

require (
	github.com/davecgh/go-spew v1.1.1 // indirect
	github.com/sergi/go-diff v1.1.0 // indirect
	golang.org/x/sync v0.10.0 // indirect
	golang.org/x/sys v0.29.0 // indirect
	golang.org/x/telemetry v0.0.0-20240522233618-39ace7a40ae7 // indirect
	golang.org/x/tools v0.29.0 // indirect
	golang.org/x/vuln v1.1.4 // indirect
)
