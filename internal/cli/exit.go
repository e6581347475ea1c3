package cli

import (
	"errors"
	"fmt"
)

// interruptedCode is the exit code of a command that was interrupted.
const interruptedCode = 130

// errDiffers is how a command ends that compared and found a difference. There is nothing to say of it that was not said.
var errDiffers = errors.New("there are differences")

// comparesAnnotation marks commands whose exit code 1 is a difference, so that what goes wrong has another: 2.
const comparesAnnotation = "compares"

// exitError is how a program ended that a command has run, and that has said why itself.
type exitError struct{ code int }

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", e.code) }
