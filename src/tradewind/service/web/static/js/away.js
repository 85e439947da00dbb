// One line when the server does not answer: what is shown is then old, and clocks and money stand still until it is back.
let line = null, last = new Date();

export const isAway = () => line !== null;

// The server has answered.
export function heard() {
  last = new Date();
  line?.remove();
  line = null;
}

// It has not; answers that say so (a proxy's) count as well.
export function lost() {
  if (line) return;
  line = document.createElement("p");
  line.className = "notice warn away";
  line.setAttribute("role", "alert");
  const since = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" }).format(last);
  line.textContent = `The server does not answer. What is shown is of ${since}; the page goes on by itself once it is back.`;
  document.querySelector("main .width").prepend(line);
}

export const silent = (status) => status === 502 || status === 503 || status === 504;
