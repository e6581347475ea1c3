// Package output is what the command line prints: tables, trees, YAML and JSON.
package output
