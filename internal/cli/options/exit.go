package options

import (
	"errors"
	"fmt"
)

// InterruptedCode is the exit code of a command that was interrupted.
const InterruptedCode = 130

// ErrDiffers is how a command ends that compared and found a difference, which it has printed.
var ErrDiffers = errors.New("there are differences")

// ComparesAnnotation marks commands whose exit code 1 is a difference, so that what goes wrong has another: 2.
const ComparesAnnotation = "compares"

// ExitError is how a command ends that has printed why itself, or whose result is the code: that of a program that it has run, for
// instance.
type ExitError struct{ Code int }

func (e ExitError) Error() string { return fmt.Sprintf("exit code %d", e.Code) }
