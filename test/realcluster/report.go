package realcluster

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	// reportTimeout is for a cluster that does not answer.
	reportTimeout = time.Minute
	// dumpTimeout is for containers that have to be started again until the logs of those that were told to quit are found.
	dumpTimeout = 15 * time.Second
	// reportedEvents, and reportedLines of each container and program, are the last ones.
	reportedEvents = 60
	reportedLines  = 40
)

// report shows what the cluster did, for a test that has failed.
func (c *Cluster) report(t testing.TB) {
	ctx, cancel := context.WithTimeout(context.Background(), reportTimeout) // that of the test has ended
	defer cancel()
	t.Logf("cluster %s\n%s%s%s%s", c.Name, c.pods(ctx), c.events(ctx), c.logs(), c.goroutines(ctx))
}

// goroutines are those of the programs in pods that have something of Capstan to do or wait for. The programs end.
func (c *Cluster) goroutines(ctx context.Context) string {
	var b strings.Builder
	told := false
	for _, n := range c.nodes {
		output, err := n.Command(ctx, "pkill", "-QUIT", "^capstan-").CombinedOutput()
		if err != nil {
			fmt.Fprintf(&b, "== no goroutines on %s: %v %s\n", n.Name, err, output) // there may be no such program
		}
		told = told || err == nil
	}
	if !told {
		return b.String()
	}
	ctx, cancel := context.WithTimeout(ctx, dumpTimeout)
	defer cancel()
	dumps := map[string]string{}
	_ = c.poll(ctx, func(ctx context.Context) error { return c.dumps(ctx, dumps) }) // what has come is shown
	for _, container := range slices.Sorted(maps.Keys(dumps)) {
		fmt.Fprintf(&b, "== goroutines of %s\n%s\n", container, dumps[container])
	}
	return b.String()
}

// dumps adds the goroutines that containers have written when they were told to quit. The error names one that has not.
func (c *Cluster) dumps(ctx context.Context, found map[string]string) error {
	var list corev1.PodList
	if err := c.Client.List(ctx, &list); err != nil {
		return err
	}
	var missing error
	for _, pod := range list.Items {
		for _, container := range pod.Spec.Containers {
			name := pod.Namespace + "/" + pod.Name + "/" + container.Name
			if found[name] != "" || !strings.Contains(container.Image, "capstan-") {
				continue
			}
			missing = fmt.Errorf("%s has not written its goroutines", name)
			for _, previous := range []bool{true, false} {
				options := corev1.PodLogOptions{Container: container.Name, Previous: previous}
				output, err := c.Logs(ctx, pod.Namespace, pod.Name, options)
				if _, dump, quit := strings.Cut(output, "SIGQUIT: quit"); err == nil && quit {
					found[name] = ownGoroutines(dump)
				}
			}
		}
	}
	return missing
}

// ownGoroutines are those of a dump that are in a function of a package of Capstan.
func ownGoroutines(dump string) string {
	var own []string
	for _, goroutine := range strings.Split(dump, "\n\n") {
		if strings.Contains(goroutine, "capstan-io/capstan/internal/") {
			own = append(own, strings.TrimSpace(goroutine))
		}
	}
	return strings.Join(own, "\n\n")
}

// logs are the ends of the logs of the nodes' programs.
func (c *Cluster) logs() string {
	var b strings.Builder
	for _, n := range c.nodes {
		logs := n.Logs(reportedLines)
		for _, program := range slices.Sorted(maps.Keys(logs)) {
			fmt.Fprintf(&b, "== the end of the log of %s on %s\n%s\n", program, n.Name, logs[program])
		}
	}
	return b.String()
}

// pods are all pods, with the ends of the logs of those outside of kube-system and of those that are not well.
func (c *Cluster) pods(ctx context.Context) string {
	var list corev1.PodList
	if err := c.Client.List(ctx, &list); err != nil {
		return fmt.Sprintf("== no pods: %v\n", err)
	}
	var b strings.Builder
	for _, pod := range list.Items {
		fmt.Fprintf(&b, "== pod %s/%s: %s\n", pod.Namespace, pod.Name, describePod(&pod))
		for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
			if pod.Namespace == "kube-system" && status.Ready {
				continue
			}
			for _, previous := range []bool{true, false} {
				if previous && status.RestartCount == 0 {
					continue
				}
				options := corev1.PodLogOptions{Container: status.Name, Previous: previous, TailLines: new(int64(reportedLines))}
				output, err := c.Logs(ctx, pod.Namespace, pod.Name, options)
				if err != nil {
					output = err.Error()
				}
				fmt.Fprintf(&b, "-- log of container %s (previous: %t)\n%s\n", status.Name, previous, strings.TrimSpace(output))
			}
		}
	}
	return b.String()
}

func (c *Cluster) events(ctx context.Context) string {
	var list corev1.EventList
	if err := c.Client.List(ctx, &list); err != nil {
		return fmt.Sprintf("== no events: %v\n", err)
	}
	slices.SortFunc(list.Items, func(a, b corev1.Event) int { return cmp.Compare(eventTime(&a), eventTime(&b)) })
	var b strings.Builder
	fmt.Fprintln(&b, "== the last events")
	for _, event := range list.Items[max(0, len(list.Items)-reportedEvents):] {
		about := event.InvolvedObject
		fmt.Fprintf(&b, "%s %s %s/%s: %s: %s\n", time.UnixMilli(eventTime(&event)).UTC().Format(time.TimeOnly), about.Kind, about.Namespace, about.Name,
			event.Reason, event.Message)
	}
	return b.String()
}

func eventTime(event *corev1.Event) int64 {
	return max(event.CreationTimestamp.UnixMilli(), event.LastTimestamp.UnixMilli(), event.EventTime.UnixMilli())
}

// describePod says in a line how a pod is.
func describePod(pod *corev1.Pod) string {
	parts := []string{string(pod.Status.Phase), pod.Status.Reason, pod.Status.Message}
	for _, condition := range pod.Status.Conditions {
		if condition.Status != corev1.ConditionTrue && condition.Message != "" {
			parts = append(parts, fmt.Sprintf("not %s: %s", condition.Type, condition.Message))
		}
	}
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		parts = append(parts, describeContainer(status))
	}
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), "; ")
}

func describeContainer(status corev1.ContainerStatus) string {
	var state string
	switch s := status.State; {
	case s.Waiting != nil:
		state = fmt.Sprintf("waits: %s: %s", s.Waiting.Reason, s.Waiting.Message)
	case s.Terminated != nil:
		state = fmt.Sprintf("ended with %d: %s: %s", s.Terminated.ExitCode, s.Terminated.Reason, s.Terminated.Message)
	case status.Ready:
		state = "ready"
	default:
		state = "runs, not ready"
	}
	return fmt.Sprintf("container %s (%s, %d restarts) %s", status.Name, status.Image, status.RestartCount, state)
}
