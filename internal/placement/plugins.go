package placement

// PluginType is what a part of a schedule, a plugin, does.
type PluginType string

const (
	// PluginFilter finds out which clusters are candidates.
	PluginFilter PluginType = "Filter"
	// PluginPrioritizer ranks candidates.
	PluginPrioritizer PluginType = "Prioritizer"
	// PluginCEL evaluates CEL expressions, as a part of the filter of the predicates.
	PluginCEL PluginType = "CEL"
)

const (
	// pluginDecisions is Balance and Steady, which depend on decisions: they are looked at when clusters are picked.
	pluginDecisions = "Balance,Steady"
	// pluginSpread is that with spread constraints.
	pluginSpread = "Spread"
)

// Timer is told that a plugin begins, and called back when it is done.
type Timer func(kind PluginType, name string) (done func())

func (s *Scheduler) timed(kind PluginType, name string) (done func()) {
	if s.options.Timer == nil {
		return func() {}
	}
	return s.options.Timer(kind, name)
}
