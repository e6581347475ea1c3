package terminal

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
)

func TestReadLine(t *testing.T) {
	t.Parallel()
	in := strings.NewReader("yes\n\nno more")
	for _, want := range []struct {
		line string
		err  error
	}{{"yes", nil}, {"", nil}, {"no more", io.EOF}, {"", io.EOF}} {
		if line, err := ReadLine(t.Context(), in); line != want.line || !errors.Is(err, want.err) {
			t.Errorf("read %q, error %v, want %q, %v", line, err, want.line, want.err)
		}
	}
}

// A prompt ends with its context, by an interrupt or a timeout, whether somebody types or not.
func TestReadLineEndsWithContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		in, keyboard := io.Pipe()
		defer keyboard.Close() // which ends the reading
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := ReadLine(ctx, in)
			ended <- err
		}()
		synctest.Wait()
		if len(ended) > 0 {
			t.Fatalf("it has not waited for a line: %v", <-ended)
		}
		over := errors.New("the time is over")
		cancel(over)
		if err := <-ended; !errors.Is(err, over) {
			t.Errorf("error %v, want %v", err, over)
		}
	})
}
