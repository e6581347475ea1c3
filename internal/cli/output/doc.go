// Package output is what the command line prints: tables, trees, YAML, JSON, and the progress of what takes a while.
package output
