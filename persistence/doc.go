// Package persistence keeps bytes on disk.
package persistence
