// Package ignoredflags declares flags that change nothing, so that command lines written for other programs of Open Cluster
// Management work. Their use is logged.
package ignoredflags

import (
	"maps"
	"slices"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
)

// Flags are those of one program.
type Flags struct {
	set map[string]string // why those that were set change nothing, by their names
}

// Kind is what a flag takes.
type Kind func(flags *pflag.FlagSet, name string)

// Kinds of flags.
var (
	Number   Kind = func(flags *pflag.FlagSet, name string) { flags.Float64(name, 0, "") }
	Duration Kind = func(flags *pflag.FlagSet, name string) { flags.Duration(name, 0, "") }
	Text     Kind = func(flags *pflag.FlagSet, name string) { flags.String(name, "", "") }
	Switch   Kind = func(flags *pflag.FlagSet, name string) { flags.Bool(name, false, "") }
)

// Add adds a flag, which the help does not show. why says what is done instead of what it asks for.
func (f *Flags) Add(flags *pflag.FlagSet, name string, kind Kind, why string) {
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	kind(own, name)
	flag := own.Lookup(name)
	flag.Usage, flag.Hidden = "Accepted, and changes nothing: "+why, true
	flag.Value = &recorded{Value: flag.Value, record: func() {
		if f.set == nil {
			f.set = map[string]string{}
		}
		f.set[name] = why
	}}
	flags.AddFlag(flag)
}

// AddLimits adds the limits of how often programs ask API servers.
func (f *Flags) AddLimits(flags *pflag.FlagSet, names ...string) {
	for _, name := range names {
		f.Add(flags, name, Number, "the priority and fairness of the API server is the limit")
	}
}

// Used are the names of the flags that were set.
func (f *Flags) Used() []string { return slices.Sorted(maps.Keys(f.set)) }

// Log tells of the flags that were set.
func (f *Flags) Log(logger logr.Logger) {
	for _, name := range f.Used() {
		LogOne(logger, name, f.set[name])
	}
}

// LogOne tells of a flag that was set and changes nothing.
func LogOne(logger logr.Logger, name, why string) {
	logger.Info("A flag is accepted and changes nothing", "flag", "--"+name, "reason", why)
}

// recorded is a value that tells when it is set.
type recorded struct {
	pflag.Value
	record func()
}

// Set implements pflag.Value.
func (r *recorded) Set(value string) error {
	if err := r.Value.Set(value); err != nil {
		return err
	}
	r.record()
	return nil
}
