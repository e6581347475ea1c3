package fleet

import (
	"fmt"
	"time"
)

// MinCredentialSeconds is the shortest validity that API servers accept for certificates and tokens, in seconds.
const MinCredentialSeconds = 600

// CredentialsNotBefore reads AnnotationCredentialsNotBefore: the zero time if there is none, so that all certificates are accepted. The
// error says what would be right.
func CredentialsNotBefore(annotations map[string]string) (time.Time, error) {
	value := annotations[AnnotationCredentialsNotBefore]
	if value == "" {
		return time.Time{}, nil
	}
	notBefore, err := time.Parse(time.RFC3339, value)
	if err != nil {
		return time.Time{}, fmt.Errorf("annotation %s=%q is no time: write one such as 2026-11-22T17:00:00Z", AnnotationCredentialsNotBefore,
			value)
	}
	return notBefore, nil
}
