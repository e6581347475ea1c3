package hubapi

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/placement/report"
)

var (
	placements         = clusterv1beta1.GroupVersion.WithResource("placements")
	placementDecisions = clusterv1beta1.GroupVersion.WithResource("placementdecisions")
)

var (
	placementKind     = clusterv1beta1.GroupVersion.WithKind("Placement")
	placementListKind = clusterv1beta1.GroupVersion.WithKind("PlacementList")
)

// Placements lists the Placements of a namespace, of all namespaces if it is empty.
func (h *Hub) Placements(ctx context.Context, namespace string) (*clusterv1beta1.PlacementList, error) {
	list := &clusterv1beta1.PlacementList{}
	err := h.Client(placements).Namespace(namespace).List(ctx, metav1.ListOptions{}, list)
	list.SetGroupVersionKind(placementListKind)
	for i := range list.Items {
		list.Items[i].SetGroupVersionKind(placementKind)
		list.Items[i].ManagedFields = nil // as kubectl does: nobody reads them
	}
	return list, h.Explain("list placements", err)
}

// Placement reads one Placement.
func (h *Hub) Placement(ctx context.Context, namespace, name string) (*clusterv1beta1.Placement, error) {
	placement := &clusterv1beta1.Placement{}
	err := h.Client(placements).Namespace(namespace).Get(ctx, name, placement)
	placement.SetGroupVersionKind(placementKind)
	placement.ManagedFields = nil
	return placement, h.Explain("read placement "+name+" of namespace "+namespace, err)
}

// PlacementDecisions lists what the placements of a namespace, of all namespaces if it is empty, have selected.
func (h *Hub) PlacementDecisions(ctx context.Context, namespace string) (*clusterv1beta1.PlacementDecisionList, error) {
	list := &clusterv1beta1.PlacementDecisionList{}
	err := h.Client(placementDecisions).Namespace(namespace).List(ctx, metav1.ListOptions{}, list)
	return list, h.Explain("list placement decisions", err)
}

// CreatePlacement creates a Placement.
func (h *Hub) CreatePlacement(ctx context.Context, placement *clusterv1beta1.Placement) error {
	err := h.Client(placements).Namespace(placement.Namespace).Create(ctx, placement, nil)
	return h.Explain("create placement "+placement.Name+" in namespace "+placement.Namespace, err)
}

// UpdatePlacement replaces the spec of a Placement and leaves the rest of it as it is.
func (h *Hub) UpdatePlacement(ctx context.Context, namespace, name string, spec clusterv1beta1.PlacementSpec) error {
	err := Change(ctx, h.Client(placements).Namespace(namespace), name, func(live *clusterv1beta1.Placement) (bool, error) {
		live.Spec = spec
		return true, nil
	})
	return h.Explain("update placement "+name+" in namespace "+namespace, err)
}

// ExplainPlacement asks why a Placement selects what it does.
func (h *Hub) ExplainPlacement(ctx context.Context, namespace, name string) (*report.Report, error) {
	r, err := h.report(ctx, h.Raw().Get().AbsPath(report.Path, namespace, name))
	return r, h.Explain("explain placement "+name+" of namespace "+namespace, err)
}

// WhatIf asks what a Placement that is not saved would select, and why.
func (h *Hub) WhatIf(ctx context.Context, placement *unstructured.Unstructured) (*report.Report, error) {
	body, err := json.Marshal(placement.Object)
	if err != nil {
		return nil, err
	}
	// AbsPath would take off the slash.
	r, err := h.report(ctx, h.Raw().Post().RequestURI(report.Path).SetHeader("Content-Type", "application/json").Body(body))
	return r, h.Explain("find out what the placement would select", err)
}

func (h *Hub) report(ctx context.Context, request *rest.Request) (*report.Report, error) {
	result := request.Do(ctx)
	err := result.Error()
	if NotServed(err) {
		return nil, fmt.Errorf("%s %w", h.Server, errNoReports)
	}
	if err != nil {
		return nil, err
	}
	body, err := result.Raw()
	if err != nil {
		return nil, err
	}
	r := &report.Report{}
	if err := json.Unmarshal(body, r); err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	return r, nil
}
