package cloudevents

import (
	"fmt"
	"slices"
	"strings"
)

// DataType names a kind of resource that events are about. It is the data type of a subscription, and the beginning of the type of an
// event.
type DataType struct {
	Group, Version, Resource string
}

// The data types of a hub.
var (
	ManagedClusters = DataType{"cluster.open-cluster-management.io", "v1", "managedclusters"}
	SigningRequests = DataType{"certificates.k8s.io", "v1", "certificatesigningrequests"}
	Leases          = DataType{"coordination.k8s.io", "v1", "leases"}
	Events          = DataType{"events.k8s.io", "v1", "events"}
	TokenRequests   = DataType{"authentication.k8s.io", "v1", "tokenrequests"}
	// ManifestBundles are ManifestWorks as they are delivered.
	ManifestBundles = DataType{"io.open-cluster-management.works", "v1alpha1", "manifestbundles"}
	AddOns          = DataType{"addon.open-cluster-management.io", "v1alpha1", "managedclusteraddons"}
	AddOnsOfBetaAPI = DataType{"addon.open-cluster-management.io", "v1beta1", "managedclusteraddons"}
)

// ParseDataType reads GROUP.VERSION.RESOURCE, where the group has dots and the others have none.
func ParseDataType(text string) (DataType, error) {
	parts := strings.Split(text, ".")
	n := len(parts)
	if n < 3 || slices.Contains(parts, "") {
		return DataType{}, fmt.Errorf("data type %q: want GROUP.VERSION.RESOURCE, such as %s", text, ManifestBundles)
	}
	return DataType{Group: strings.Join(parts[:n-2], "."), Version: parts[n-2], Resource: parts[n-1]}, nil
}

func (t DataType) String() string { return t.Group + "." + t.Version + "." + t.Resource }

// Action says what an event asks for, or tells.
type Action string

// The actions. A response answers the resync request of the other side.
const (
	Create         Action = "create_request"
	Update         Action = "update_request"
	Delete         Action = "delete_request"
	Watch          Action = "watch_request"
	Resync         Action = "resync_request"
	ResyncResponse Action = "resync_response"
)

// SubResource is the part of a resource that an event is about.
type SubResource string

// Sources write specs, agents write statuses.
const (
	Spec   SubResource = "spec"
	Status SubResource = "status"
)

// Type is the type of an event, GROUP.VERSION.RESOURCE.SUBRESOURCE.ACTION.
type Type struct {
	DataType
	SubResource SubResource
	Action      Action
}

// Heartbeat is the type of the events by which a server tells its subscribers that it is there.
const Heartbeat = "io.open-cluster-management.cloudevents.heartbeat"

// ParseType reads the type of an event.
func ParseType(text string) (Type, error) {
	rest, action := cutLast(text)
	dataType, subResource := cutLast(rest)
	parsed, err := ParseDataType(dataType)
	switch {
	case err != nil:
		return Type{}, fmt.Errorf("event type %q: want GROUP.VERSION.RESOURCE.SUBRESOURCE.ACTION", text)
	case SubResource(subResource) != Spec && SubResource(subResource) != Status:
		return Type{}, fmt.Errorf("event type %q: the subresource is %q, want %s or %s", text, subResource, Spec, Status)
	}
	switch Action(action) {
	case Create, Update, Delete, Watch, Resync, ResyncResponse:
		return Type{DataType: parsed, SubResource: SubResource(subResource), Action: Action(action)}, nil
	}
	return Type{}, fmt.Errorf("event type %q: the action is %q, want one such as %s", text, action, Update)
}

func (t Type) String() string {
	return t.DataType.String() + "." + string(t.SubResource) + "." + string(t.Action)
}

func cutLast(text string) (before, after string) {
	i := max(strings.LastIndexByte(text, '.'), 0)
	return text[:i], strings.TrimPrefix(text[i:], ".")
}
