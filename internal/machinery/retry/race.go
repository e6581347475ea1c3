package retry

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/retry"
)

// OnRace calls write again, after a delay that grows, while its error says that another writer has created or changed the object meanwhile,
// as a process that starts at the same time does. write has to read the object each time. The error is that of the last of four calls.
func OnRace(write func() error) error {
	return retry.OnError(retry.DefaultBackoff, isRace, write)
}

func isRace(err error) bool { return apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) }
