// Package output is how the command line talks: tables, trees, YAML, JSON, and the progress of what takes a while.
package output
