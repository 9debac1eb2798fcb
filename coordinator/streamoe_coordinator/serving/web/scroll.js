// @ts-check
/**
 * Staying at the end while an answer grows, and only for a reader who is there. Owns the scroll position.
 */

const NEAR_END_PX = 48;

/**
 * @param {HTMLElement} scroller
 * @param {HTMLElement} content
 * @param {HTMLElement} button shown to a reader who is elsewhere
 * @returns {{ toEnd: () => void }}
 */
export function followScroll(scroller, content, button) {
  let isAtEnd = true;
  let lastTop = 0;
  const jump = () => scroller.scrollTo({ top: scroller.scrollHeight, behavior: "instant" });
  const look = () => {
    const isNear = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < NEAR_END_PX;
    // Only going up leaves the end: a jump's own event may come after the content has grown again.
    if (isNear || scroller.scrollTop < lastTop) isAtEnd = isNear;
    lastTop = scroller.scrollTop;
    button.hidden = isAtEnd;
  };
  const toEnd = () => {
    isAtEnd = true;
    jump();
    look();
  };
  scroller.addEventListener("scroll", look, { passive: true });
  const observer = new ResizeObserver(() => (isAtEnd ? jump() : look()));
  observer.observe(content);
  observer.observe(scroller);
  button.addEventListener("click", toEnd);
  return { toEnd };
}
