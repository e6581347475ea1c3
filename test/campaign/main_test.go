// Package campaign puts a fault at every write of the hub's controllers, and compares what is stored in the end with what a run without
// faults stores: docs/testing-with-faults.md.
package campaign

import (
	"bytes"
	"flag"
	"os"
	"slices"
	"sync"
	"testing"

	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capstan-io/capstan/test/env"
)

func TestMain(m *testing.M) {
	flags := flag.NewFlagSet("klog", flag.PanicOnError)
	klog.InitFlags(flags)
	for name, value := range map[string]string{"logtostderr": "false", "stderrthreshold": "FATAL", "one_output": "true"} {
		if err := flags.Set(name, value); err != nil {
			panic(err)
		}
	}
	klog.SetOutput(&journal)
	ctrl.SetLogger(klog.Background())
	os.Exit(env.Run(m))
}

// journal is what the controllers have logged in the present run.
var journal logged

type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Reset()
}

// tail are the last lines that are no mere information.
func (l *logged) tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	const most = 30
	lines := slices.DeleteFunc(bytes.Split(bytes.Clone(l.text.Bytes()), []byte("\n")),
		func(line []byte) bool {
			return bytes.HasPrefix(line, []byte("I")) || bytes.Contains(line, []byte("context canceled"))
		})
	return string(bytes.Join(lines[max(0, len(lines)-most):], []byte("\n")))
}
