package resources

import (
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/capstan-io/capstan/internal/cloudevents"
)

func groupResource(dataType cloudevents.DataType) schema.GroupResource {
	return schema.GroupResource{Group: dataType.Group, Resource: dataType.Resource}
}

func forbidden(dataType cloudevents.DataType, name, format string, args ...any) error {
	return apierrors.NewForbidden(groupResource(dataType), name, fmt.Errorf(format, args...))
}

// unsupported is the error for an event that asks for what nobody may have by gRPC.
func unsupported(eventType cloudevents.Type, may string) error {
	return apierrors.NewBadRequest(fmt.Sprintf("%s of the %s of %s is not taken; an agent may %s", eventType.Action, eventType.SubResource,
		eventType.DataType, may))
}

func unreadable(err error) error { return apierrors.NewBadRequest(err.Error()) }

func checkName(dataType cloudevents.DataType, name string) error {
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return apierrors.NewBadRequest(fmt.Sprintf("%s: metadata.name is %q: %s", dataType, name, strings.Join(problems, "; ")))
	}
	return nil
}
