package main

import (
	"github.com/spf13/pflag"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // makes --logging-format json known
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

// logging is one log for the API server, etcd and the controllers, on standard error.
type logging struct{ *logs.Options }

func newLogging() logging { return logging{logs.NewOptions()} }

func (l logging) addFlags(flags *pflag.FlagSet) {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	logsapi.AddFlags(l.Options, all)
	for _, name := range []string{"v", "vmodule", "logging-format"} {
		flags.AddFlag(all.Lookup(name))
	}
}

func (l logging) apply() error {
	if err := logsapi.ValidateAndApply(l.Options, nil); err != nil {
		return err
	}
	ctrl.SetLogger(klog.Background())
	return nil
}
