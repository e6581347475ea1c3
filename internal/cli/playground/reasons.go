package playground

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capstan-io/capstan/deploy/examples"
	"github.com/capstan-io/capstan/internal/cli/managedclusters"
	"github.com/capstan-io/capstan/internal/cli/manifestworks"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

const (
	// reasonsDelay is how long something may take before the reason is read, and reasonsInterval how often then.
	reasonsDelay    = 4 * time.Second
	reasonsInterval = 2 * time.Second
	// logReadLimit is how much of the end of a log is read, in bytes.
	logReadLimit = 64 << 10
)

// waitReportingReasons waits, and reports meanwhile what blocks that, each reason once. The error of a wait that is cut short has the last
// reason.
func waitReportingReasons(ctx context.Context, report Reporter, subject string, reason func(context.Context) string,
	wait func(context.Context) error) error {
	reporting, stop := context.WithCancel(ctx)
	defer stop()
	reasons := make(chan string, 1)
	warn := func(reason string) { report.Warn(subject, reason) }
	go func() { reasons <- reportReasons(reporting, time.After, reason, warn) }()
	err := wait(ctx)
	stop()
	last := <-reasons
	if err == nil || last == "" || ctx.Err() == nil || isExit(ctx) {
		return err
	}
	return fmt.Errorf("%w\nWhat holds up %s: %s", err, subject, last)
}

// isExit reports whether a context has ended because a process has, whose log is shown then.
func isExit(ctx context.Context) bool {
	var exit *exitError
	return errors.As(context.Cause(ctx), &exit)
}

// reportReasons reports each reason once, until the context ends, and returns the last one. after is as time.After.
func reportReasons(ctx context.Context, after func(time.Duration) <-chan time.Time, find func(context.Context) string,
	report func(string)) (last string) {
	reported := map[string]bool{}
	for next := reasonsDelay; ; next = reasonsInterval {
		select {
		case <-ctx.Done():
			return last
		case <-after(next):
		}
		reason := find(ctx)
		if ctx.Err() != nil {
			return last
		}
		if reason != "" && !reported[reason] {
			reported[reason] = true
			report(reason)
		}
		last = reason
	}
}

// reasonNotJoined is what the hub and the agent report about a cluster that has not joined; empty if that is nothing.
func (c *upCluster) reasonNotJoined(ctx context.Context, problems *logProblems) string {
	cluster, err := managedclusters.Get(ctx, c.hub, c.name)
	if apierrors.IsNotFound(err) {
		return problems.describe("the agent has not registered it on the hub yet")
	}
	if err != nil {
		return err.Error()
	}
	find := func(kind string) *metav1.Condition { return meta.FindStatusCondition(cluster.Status.Conditions, kind) }
	if !cluster.DeletionTimestamp.IsZero() {
		if c := find(fleet.ConditionDeleting); c != nil {
			return "it is being deleted: " + c.Message
		}
		return "it is being deleted"
	}
	if c := find(fleet.ConditionHubAccepted); c != nil && c.Status != metav1.ConditionTrue && cluster.Spec.HubAcceptsClient {
		return "the hub has not set it up: " + c.Message
	}
	if !has(fleet.ConditionJoined)(cluster) {
		return problems.describe("the agent has no certificate of the hub yet")
	}
	if c := find(fleet.ConditionClusterAvailable); c != nil && c.Status != metav1.ConditionTrue {
		return problems.describe("it is not available: " + c.Message)
	}
	return problems.describe("")
}

// reasonNoSample is what the agent reports about the sample.
func (c *upCluster) reasonNoSample(ctx context.Context) string {
	sample, err := examples.Nginx(c.name)
	if err != nil {
		return err.Error()
	}
	work, err := manifestworks.Get(ctx, c.hub, c.name, sample.Name)
	if err != nil {
		return err.Error()
	}
	if !work.DeletionTimestamp.IsZero() {
		return "the sample, ManifestWork " + sample.Name + ", is being deleted"
	}
	for _, kind := range []string{fleet.ConditionApplied, fleet.ConditionAvailable} {
		switch c := meta.FindStatusCondition(work.Status.Conditions, kind); {
		case c == nil:
			return "the agent has not reported on the sample yet"
		case c.Status != metav1.ConditionTrue:
			return fmt.Sprintf("the sample is not %s: %s", kind, c.Message)
		}
	}
	return ""
}

// logProblems are the problems that an agent writes to its log.
type logProblems struct {
	file string
	from int64
}

// followLog starts at the end of the log of a process that ran already, or at the beginning of a new one.
func followLog(process *Process, started bool) *logProblems {
	p := &logProblems{file: process.Log}
	if info, err := os.Stat(p.file); err == nil && !started {
		p.from = info.Size()
	}
	return p
}

// describe returns the last problem that the agent has logged, behind another reason if there is one.
func (p *logProblems) describe(otherwise string) string {
	last := p.last()
	switch {
	case last == "":
		return otherwise
	case otherwise == "":
		return "the agent says: " + last
	}
	return otherwise + "; the agent says: " + last
}

func (p *logProblems) last() (problem string) {
	file, err := os.Open(p.file)
	if err != nil {
		return ""
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return ""
	}
	from := max(p.from, info.Size()-logReadLimit)
	content, err := io.ReadAll(io.NewSectionReader(file, from, logReadLimit))
	if err != nil {
		return ""
	}
	for line := range strings.SplitSeq(string(content), "\n") {
		if text := problemOf(line); text != "" {
			problem = text
		}
	}
	return problem
}

var (
	problemLevel = regexp.MustCompile(`\blevel=(?:ERROR|WARN)\b`)
	logMessage   = regexp.MustCompile(`\bmsg=("(?:[^"\\]|\\.)*"|\S+)`)
	logError     = regexp.MustCompile(`\berr(?:or)?=("(?:[^"\\]|\\.)*"|\S+)`)
)

// problemOf is what a line of a log says of a problem; empty if it is about none.
func problemOf(line string) string {
	if !problemLevel.MatchString(line) {
		return ""
	}
	var parts []string
	for _, pattern := range []*regexp.Regexp{logMessage, logError} {
		if found := pattern.FindStringSubmatch(line); found != nil {
			text := found[1]
			if plain, err := strconv.Unquote(text); err == nil {
				text = plain
			}
			parts = append(parts, text)
		}
	}
	return strings.Join(parts, ": ")
}
