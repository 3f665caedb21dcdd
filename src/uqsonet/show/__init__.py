"""Pictures, exports, pages, progress."""
