package etcd

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"

	"github.com/go-logr/logr"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// logCore hands etcd's zap messages to the program's own logger, so that one process has one log. etcd talks a lot at
// info level about what its embedding program decides: that goes to verbosity 4.
type logCore struct {
	out    logr.Logger
	fields []zapcore.Field
	muted  *atomic.Bool
	// failed takes the first thing that etcd cannot go on after. broken says that it left etcd in the middle of something.
	failed chan error
	broken *atomic.Bool
}

const etcdInfoVerbosity = 4

func newLogCore(out logr.Logger) *logCore {
	return &logCore{out: out.WithName("etcd"), muted: &atomic.Bool{}, failed: make(chan error, 1), broken: &atomic.Bool{}}
}

func (c *logCore) logger() *zap.Logger {
	return zap.New(c, zap.WithFatalHook(ending{c}), zap.WithPanicHook(ending{c}))
}

func (c *logCore) fail(err error) {
	select {
	case c.failed <- err:
	default:
	}
}

// ending is what follows a message after which etcd would end the process. Here the program decides, so only the
// goroutine ends.
type ending struct{ core *logCore }

// OnWrite implements zapcore.CheckWriteHook.
func (e ending) OnWrite(entry *zapcore.CheckedEntry, fields []zapcore.Field) {
	values := zapcore.NewMapObjectEncoder()
	for _, f := range fields {
		f.AddTo(values)
	}
	err := errors.New(entry.Message)
	if cause, found := values.Fields["error"]; found {
		err = fmt.Errorf("%w: %v", err, cause)
	}
	e.core.broken.Store(true)
	e.core.fail(err)
	runtime.Goexit()
}

func (c *logCore) mute() { c.muted.Store(true) }

// Enabled implements zapcore.LevelEnabler.
func (c *logCore) Enabled(level zapcore.Level) bool {
	if c.muted.Load() || c.out.GetSink() == nil {
		return false
	}
	return level >= zapcore.WarnLevel || (level >= zapcore.InfoLevel && c.out.V(etcdInfoVerbosity).Enabled())
}

// With implements zapcore.Core.
func (c *logCore) With(fields []zapcore.Field) zapcore.Core {
	clone := *c
	clone.fields = append(append([]zapcore.Field(nil), c.fields...), fields...)
	return &clone
}

// Check implements zapcore.Core.
func (c *logCore) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(entry.Level) {
		return checked.AddCore(entry, c)
	}
	return checked
}

// Write implements zapcore.Core.
func (c *logCore) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	enc := zapcore.NewMapObjectEncoder()
	for _, f := range append(append([]zapcore.Field(nil), c.fields...), fields...) {
		f.AddTo(enc)
	}
	values := make([]any, 0, 2*len(enc.Fields))
	for k, v := range enc.Fields {
		values = append(values, k, v)
	}
	switch {
	case entry.Level > zapcore.ErrorLevel:
		// The program reports it.
	case strings.HasPrefix(entry.Message, "failed to update storage version"):
		// Of a new member etcd says so until its first write is on disk.
		c.out.V(etcdInfoVerbosity).Info(entry.Message, values...)
	case entry.Level >= zapcore.ErrorLevel:
		c.out.Error(nil, entry.Message, values...)
	case entry.Level == zapcore.WarnLevel:
		// etcd warns about every single-member installation; what needs an operator it reports as an error.
		c.out.V(1).Info(entry.Message, values...)
	default:
		c.out.V(etcdInfoVerbosity).Info(entry.Message, values...)
	}
	return nil
}

// Sync implements zapcore.Core.
func (c *logCore) Sync() error { return nil }
