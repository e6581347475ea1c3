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
	// whyAfter is how long something may take before it is looked for what holds it up, and whyAgain how often then.
	whyAfter = 4 * time.Second
	whyAgain = 2 * time.Second
	// logRead is how much of the end of a log is looked at, in bytes.
	logRead = 64 << 10
)

// sayingWhy waits, and tells meanwhile what holds that up, each reason once. The error of a wait that is cut short has the last reason.
func sayingWhy(ctx context.Context, report Reporter, subject string, why func(context.Context) string,
	wait func(context.Context) error) error {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	reasons := make(chan string, 1)
	tell := func(reason string) { report.Warn(subject, reason) }
	go func() { reasons <- tellReasons(watching, time.After, why, tell) }()
	err := wait(ctx)
	stop()
	reason := <-reasons
	if err == nil || reason == "" || ctx.Err() == nil || isDeath(ctx) {
		return err
	}
	return fmt.Errorf("%w\nWhat holds up %s: %s", err, subject, reason)
}

// isDeath tells whether a context has ended because a process has, whose log is shown then.
func isDeath(ctx context.Context) bool {
	var death *deathError
	return errors.As(context.Cause(ctx), &death)
}

// tellReasons tells each reason once, until the context ends, and returns the last one. after is as time.After.
func tellReasons(ctx context.Context, after func(time.Duration) <-chan time.Time, why func(context.Context) string,
	tell func(string)) (last string) {
	told := map[string]bool{}
	for next := whyAfter; ; next = whyAgain {
		select {
		case <-ctx.Done():
			return last
		case <-after(next):
		}
		reason := why(ctx)
		if ctx.Err() != nil {
			return last
		}
		if reason != "" && !told[reason] {
			told[reason] = true
			tell(reason)
		}
		last = reason
	}
}

// whyNotJoined says what the hub and the agent say about a cluster that has not joined; empty if that is nothing.
func (u *up) whyNotJoined(ctx context.Context, name string, words *words) string {
	cluster, err := managedclusters.Get(ctx, u.hub, name)
	if apierrors.IsNotFound(err) {
		return words.or("the agent has not registered it on the hub yet")
	}
	if err != nil {
		return err.Error()
	}
	said := func(kind string) *metav1.Condition { return meta.FindStatusCondition(cluster.Status.Conditions, kind) }
	if !cluster.DeletionTimestamp.IsZero() {
		if c := said(fleet.ConditionDeleting); c != nil {
			return "it is being deleted: " + c.Message
		}
		return "it is being deleted"
	}
	if c := said(fleet.ConditionHubAccepted); c != nil && c.Status != metav1.ConditionTrue && cluster.Spec.HubAcceptsClient {
		return "the hub has not set it up: " + c.Message
	}
	if !has(fleet.ConditionJoined)(cluster) {
		return words.or("the agent has no certificate of the hub yet")
	}
	if c := said(fleet.ConditionClusterAvailable); c != nil && c.Status != metav1.ConditionTrue {
		return words.or("it is not available: " + c.Message)
	}
	return words.or("")
}

// whyNoSample says what the agent reports of the sample.
func (u *up) whyNoSample(ctx context.Context, cluster string) string {
	sample, err := examples.Nginx(cluster)
	if err != nil {
		return err.Error()
	}
	work, err := manifestworks.Get(ctx, u.hub, cluster, sample.Name)
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

// words are the problems that an agent writes to its log.
type words struct {
	file string
	from int64
}

// listen begins where the log of a process that ran already is now, or at the beginning of a new one.
func listen(process *Process, started bool) *words {
	w := &words{file: process.Log}
	if info, err := os.Stat(w.file); err == nil && !started {
		w.from = info.Size()
	}
	return w
}

// or returns the last problem that the agent has written, after what is known otherwise.
func (w *words) or(otherwise string) string {
	last := w.last()
	switch {
	case last == "":
		return otherwise
	case otherwise == "":
		return "the agent says: " + last
	}
	return otherwise + "; the agent says: " + last
}

func (w *words) last() (problem string) {
	file, err := os.Open(w.file)
	if err != nil {
		return ""
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return ""
	}
	from := max(w.from, info.Size()-logRead)
	content, err := io.ReadAll(io.NewSectionReader(file, from, logRead))
	if err != nil {
		return ""
	}
	for line := range strings.SplitSeq(string(content), "\n") {
		if said := problemOf(line); said != "" {
			problem = said
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
