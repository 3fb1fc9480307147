// Command pause holds a pod's namespaces and does nothing, as https://github.com/kubernetes/kubernetes/blob/master/build/pause/linux/pause.c:
// it ends at SIGINT and SIGTERM, and as process 1 of a pod that shares its process namespace it reaps the orphans.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for {
		for { // also before the first signal: an orphan may have ended before there was anything to receive it
			pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
			if err != syscall.EINTR && pid <= 0 {
				break
			}
		}
		if <-signals != syscall.SIGCHLD {
			return
		}
	}
}
