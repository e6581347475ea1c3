package playground

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/managedclusters"
	"github.com/capstan-io/capstan/internal/cli/manifestworks"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// Status is how a playground is.
type Status struct {
	Home string `json:"home"`
	// Kubeconfig leads to the hub and the clusters.
	Kubeconfig string `json:"kubeconfig"`
	// Contexts are those that "up" wrote there: the hub's first, then the clusters' of the playground.
	Contexts  []string        `json:"contexts"`
	Processes []ProcessStatus `json:"processes"`
	Clusters  []ClusterStatus `json:"clusters"`
	Works     []WorkStatus    `json:"works"`
	// Problem is why clusters and works could not be read, empty if they were.
	Problem string `json:"problem,omitempty"`
}

// ProcessStatus is how a process is.
type ProcessStatus struct {
	Name    string `json:"name"`
	Running bool   `json:"running"`
	// PID, RSSBytes and StartedAt are those of a running process.
	PID       int        `json:"pid,omitempty"`
	RSSBytes  uint64     `json:"rssBytes,omitempty"`
	StartedAt *time.Time `json:"startedAt,omitempty"`
	// Endpoint is the URL it serves, empty for agents.
	Endpoint string `json:"endpoint,omitempty"`
	Log      string `json:"log"`
}

// ClusterStatus is how the hub sees a cluster. The values are those of conditions: True, False or Unknown.
type ClusterStatus struct {
	Name      string                 `json:"name"`
	Accepted  bool                   `json:"accepted"`
	Joined    metav1.ConditionStatus `json:"joined"`
	Available metav1.ConditionStatus `json:"available"`
}

// WorkStatus is how the hub sees a ManifestWork.
type WorkStatus struct {
	Name      string                 `json:"name"`
	Cluster   string                 `json:"cluster"`
	Manifests int                    `json:"manifests"`
	Applied   metav1.ConditionStatus `json:"applied"`
	Available metav1.ConditionStatus `json:"available"`
}

// Exists reports whether anything was ever started in this home.
func (s Status) Exists() bool { return len(s.Processes) > 0 }

// AgentsOnly reports whether there is no playground, but agents that joined other hubs.
func (s Status) AgentsOnly() bool { return s.Exists() && len(s.Contexts) == 0 }

// Down are the names of the processes that should run and do not.
func (s Status) Down() []string {
	var names []string
	for _, process := range s.Processes {
		if !process.Running {
			names = append(names, process.Name)
		}
	}
	return names
}

// Status reads how the playground is. Why the hub could not be read is in Problem, not in the error.
func (h Home) Status(ctx context.Context) (Status, error) {
	status := Status{
		Home: h.Dir, Kubeconfig: h.Kubeconfig(),
		Contexts: []string{}, Processes: []ProcessStatus{}, Clusters: []ClusterStatus{}, Works: []WorkStatus{},
	}
	state, err := h.Load()
	if err != nil {
		return status, err
	}
	if status.Processes, err = h.Processes().statuses(state); err != nil {
		return status, err
	}
	if state.Hub == nil {
		return status, nil
	}
	status.Contexts = append(status.Contexts, hubapi.PlaygroundContext)
	for _, cluster := range state.Clusters {
		status.Contexts = append(status.Contexts, cluster.Name)
	}
	if !status.Processes[0].Running {
		status.Problem = "the hub does not run"
		return status, nil
	}
	if err := status.readHub(ctx); err != nil {
		status.Problem = err.Error()
	}
	return status, nil
}

// statuses are how those are that should run, and those that a person runs in a terminal.
func (p Processes) statuses(state State) ([]ProcessStatus, error) {
	found := []ProcessStatus{}
	for _, name := range state.processes() {
		process, err := p.get(name)
		if err != nil {
			return found, err
		}
		found = append(found, statusOf(process))
	}
	for _, joined := range state.Joined {
		process, err := p.get(agentProcess(joined.Name))
		if err != nil {
			return found, err
		}
		if joined.Foreground && process.Running() {
			found = append(found, statusOf(process))
		}
	}
	return found, nil
}

// processes are the names of all processes that should run, the hub's first.
func (s State) processes() []string {
	var names []string
	if s.Hub != nil {
		names = append(names, hubProcess)
	}
	for _, cluster := range s.Clusters {
		names = append(names, sandboxProcess(cluster.Name), agentProcess(cluster.Name))
	}
	for _, joined := range s.background() {
		names = append(names, agentProcess(joined.Name))
	}
	return names
}

func statusOf(process *Process) ProcessStatus {
	status := ProcessStatus{Name: process.Name, Running: process.Running(), Endpoint: process.Endpoint, Log: process.Log}
	if status.Running {
		status.PID, status.RSSBytes, status.StartedAt = process.PID, process.RSS(), &process.StartedAt
	}
	return status
}

func (s *Status) readHub(ctx context.Context) error {
	hub, err := hubapi.Connect(hubapi.Target{Kubeconfig: s.Kubeconfig, Context: hubapi.PlaygroundContext})
	if err != nil {
		return fmt.Errorf("%w\n\"capstan up\" writes it again.", err)
	}
	hub.Source.Playground = true
	clusters, err := managedclusters.List(ctx, hub, "")
	if err != nil {
		return err
	}
	works, err := manifestworks.List(ctx, hub, "", "")
	if err != nil {
		return err
	}
	for i := range clusters.Items {
		s.Clusters = append(s.Clusters, clusterStatus(&clusters.Items[i]))
	}
	for i := range works.Items {
		s.Works = append(s.Works, workStatus(&works.Items[i]))
	}
	return nil
}

func clusterStatus(cluster *clusterv1.ManagedCluster) ClusterStatus {
	return ClusterStatus{
		Name: cluster.Name, Accepted: cluster.Spec.HubAcceptsClient,
		Joined:    condition(cluster.Status.Conditions, fleet.ConditionJoined),
		Available: condition(cluster.Status.Conditions, fleet.ConditionClusterAvailable),
	}
}

func workStatus(work *workv1.ManifestWork) WorkStatus {
	return WorkStatus{
		Name: work.Name, Cluster: work.Namespace, Manifests: len(work.Spec.Workload.Manifests),
		Applied:   condition(work.Status.Conditions, fleet.ConditionApplied),
		Available: condition(work.Status.Conditions, fleet.ConditionAvailable),
	}
}

func condition(conditions []metav1.Condition, conditionType string) metav1.ConditionStatus {
	if found := meta.FindStatusCondition(conditions, conditionType); found != nil {
		return found.Status
	}
	return metav1.ConditionUnknown
}
