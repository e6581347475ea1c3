package placement

// PluginType is the plugin_type in metrics.
type PluginType string

const (
	// PluginFilter decides which clusters are candidates.
	PluginFilter PluginType = "Filter"
	// PluginPrioritizer scores candidates.
	PluginPrioritizer PluginType = "Prioritizer"
	// PluginCEL evaluates CEL expressions, as a part of the predicate filter.
	PluginCEL PluginType = "CEL"
)

const (
	// pluginDecisions is Balance and Steady, which are scored while clusters are selected.
	pluginDecisions = "Balance,Steady"
	// pluginSpread is the selection with spread constraints.
	pluginSpread = "Spread"
)

// Timer is called when a plugin starts, and done when it ends.
type Timer func(kind PluginType, name string) (done func())

// framework runs filters and scorers on a snapshot.
type framework struct {
	*snapshot
	options Options
}

func (f *framework) timed(kind PluginType, name string) (done func()) {
	if f.options.Timer == nil {
		return func() {}
	}
	return f.options.Timer(kind, name)
}
