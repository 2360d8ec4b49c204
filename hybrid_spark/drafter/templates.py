"""Prompt templates of the drafter's training text, and the fillers they are multiplied with.

A template belongs to one split as a whole, so that calibration and evaluation see prompts from no training template.
``{topic}`` and the other words come from the lists below; ``{code}``, ``{passage}`` and ``{name}`` from ``sources``.
"""

__all__ = ["FILLERS", "HELD_OUT_FILLERS", "TEMPLATES"]

_CHAT_TRAIN = r"""
Explain {topic} to {audience}.
What is {topic}? Answer in {n} sentences.
Give me {n} tips about {topic}.
Why does {topic} matter? Please give examples.
Write a short {form} about {topic}.
Write a {tone} {form} about {topic} for {audience}.
I have to give a talk on {topic}. Suggest an outline with {n} sections.
Describe the history of {topic} briefly.
What are the most common mistakes people make with {topic}?
Compare {topic} with {topic2}.
List the advantages and disadvantages of {topic}.
How would {role} explain {topic}?
You are {role}. A customer asks about {topic}. Reply in a {tone} tone.
Write an email to {role} about {topic}. Keep it {tone}.
What questions should I ask {role} about {topic}?
Tell me something surprising about {topic}.
How do I get started with {topic} if I only have {n} hours a week?
Create a {n}-day plan to learn about {topic}.
Draft a social media post on {topic} in a {tone} style.
Give a step-by-step guide to {topic}.
Is {topic} difficult to understand? Convince me that it is not.
Write a dialogue between {role} and {role2} about {topic}.
Suggest {n} titles for a book on {topic}.
Define these terms in one sentence each: {topic}, {topic2}, {topic3}.
What would happen if nobody cared about {topic}?
Make a quiz of {n} questions about {topic}, with the answers.
My friend thinks {topic} is boring. What should I say?
Write a {form} that mentions {object}, {object2} and {object3}.
{name_person} has {n} {object}s and buys {m} more, then gives away {k}. How many are left? Explain the steps.
A shop sells a {object} for {m} dollars. How much do {n} of them cost with a {k}% discount?
Calculate {m} times {n} plus {k}. Show the working.
Translate into {language}: "The {object} is next to the {object2}."
Classify each item as living or not living: {object}, {animal}, {object2}, {animal2}.
Write a story about a {animal} who finds a {object}.
What is the difference between a {animal} and a {animal2}?
Describe a day in the life of {role}.
What skills does {role} need? Give {n}.
Give me a recipe that uses {food} and {food2}.
How do I store {food} so that it keeps longer?
Plan a {n}-day trip to {place} for {audience}.
What is {place} known for?
Write a product description for a {tone} {object}.
Correct the grammar: "She {verb} to {place} yesterday and buyed a {object}."
Rewrite this in a {tone} tone: "I need the {object} by Friday or the order for {food} is cancelled."
Write a Python function that {task}.
Write a Python program that {task} and explain how it works.
How can I {task} in Python? Show an example.
Write a JavaScript function that {task}.
Write a SQL query that lists every {object} bought in {place} more than {n} times.
Write a class for {role} in Python with {n} methods.
What does the term {topic} mean in everyday life?
Name {n} jobs that deal with {topic}.
Write the opening paragraph of an essay on {topic}.
Summarise what you know about {place} in {n} bullet points.
{name_person} reads {n} pages an hour. How many hours does a book of {m} pages take? Reason it out.
A farmer has {m} {animal}s in {n} fields. How many are there on average? Show your reasoning.
A recipe for {n} people needs {k} cups of {food}. How much do {m} people need? Solve it one step after another.
Two cyclists start {m} km apart and ride towards each other at {n} and {k} km/h. When do they meet?
If all {animal}s like {food} and this pet does not, what can we conclude?
Solve for x: {n}x + {k} = {m}. Explain each line.
Write a fairy tale set in {place} with a {animal} and {role}.
Write the first chapter of a novel about {role} who loses a {object}.
Finish this story: "Nobody in {place} believed the {animal} until the day the {object} broke."
Tell the story of a lost {object}, from the view of the {object}.
Tell me about the invention of the {object} and how it changed daily life.
When did {topic} first become important in {place}, and who was involved?
How does {topic} influence trade and jobs in {place}?
Write a travel article on {place} that mentions {food} and {topic}.
Give an overview of research on {topic}, with open questions.
Which words in this sentence are verbs? "{name_person} took the {object}, left {place} and bought {food}."
List the people, places and things in this sentence: "{name_person} sold a {object} to {role} in {place}."
Sort these words alphabetically and by length: {object}, {animal}, {food}, {object2}.
Say this in {language} and explain the grammar: "The {animal} sleeps under the {object}."
Here are three words: {animal}, {food}, {place}. Use each in a sentence.
Act as {role}. I ask you: "What do you think of {topic}?" Answer in character.
As {role}, defend the view that {topic} should be taught in schools.
Design an algorithm that {task}. Give pseudocode first and Python afterwards.
Explain the time and memory that a program needs when it {task}.
Write a Java method that {task}, with comments.
Debate {topic}: give the case for, the case against and a conclusion.
Complete the table in Markdown: columns {object}, {animal}, {food}; {n} rows of facts.
"""

_CODE_TRAIN = r"""
Here is a Python function:\n\n```python\n{code}\n```\n\nAdd type hints to it. Return the complete function.
Add a docstring to this function and return the whole code.\n\n```python\n{code}\n```
Rewrite the following code so that it is easier to read. Keep its behaviour.\n\n```python\n{code}\n```
```python\n{code}\n```\nRename `{name}` to `process_{name}`. Output the full updated code.
Edit this code: print a message with the arguments at the start of the function.\n\n```python\n{code}\n```
Fix any bug you find in this function and give back the complete corrected version:\n\n```python\n{code}\n```
Please add error handling to this function.\n\n{code}
```python\n{code}\n```\n\nAdd comments to every step of this code without changing it.
Update the function so that it logs its result before it returns.\n\n```python\n{code}\n```\n\nReturn only the code.
Explain what this function does:\n\n```python\n{code}\n```
What does `{name}` do in the following code?\n\n```python\n{code}\n```
Write unit tests for this function.\n\n```python\n{code}\n```
Review this code and list possible problems.\n\n{code}
Split the function below into smaller helpers and show everything.\n\n```python\n{code}\n```
Give this function an optional `verbose` argument. Print the whole function again.\n\n```python\n{code}\n```
```python\n{code}\n```\n\nThe function above must raise a ValueError for bad input. Give the changed code only.
Make this code handle empty and missing values. Return all of it.\n\n```python\n{code}\n```
Translate this Python code to JavaScript:\n\n```python\n{code}\n```
Turn this function into a method of a class called `{name}Helper`.\n\n```python\n{code}\n```
I want every variable in this code to have a longer name. Rewrite it.\n\n{code}
## Program\n```python\n{code}\n```\n\n## Instruction\nAdd a parameter with a default value.\n\n## Edited program
Optimise this code for speed, then output the new version in full.\n\n```python\n{code}\n```
Remove all comments from this code and keep the rest as it is.\n\n```python\n{code}\n```
Write the documentation page of this function: purpose, arguments, return value.\n\n```python\n{code}\n```
"""

_TEXT_TRAIN = r"""
Summarise this text in {n} sentences:\n\n{passage}
{passage}\n\nWhat is the main point of the text above?
Continue this text:\n\n{passage}
Rewrite the following passage in simpler words.\n\n{passage}
Write documentation for `{name}` based on these notes:\n\n{passage}
Turn these notes into a bullet list:\n\n{passage}
Read the passage and write {n} questions that it answers.\n\nPassage: {passage}
Copy the following text and fix its typos:\n\n{passage}
Explain this paragraph to {audience}:\n\n{passage}
Passage: {passage}\n\nAnswer from the passage: what is `{name}` for?
{passage}\n\nList the key terms of this text with a definition each.
Write a tutorial with an example from this description:\n\n{passage}
Give me the gist of this in one paragraph:\n\n{passage}
{passage}\n\nTrue or false: the text says how to use `{name}`. Explain.
Convert this text to a table of options and their meaning:\n\n{passage}
Write an email that tells a colleague what this text says:\n\n{passage}
"""

_CALIBRATION = r"""
Could you help {audience} understand {topic}?
What are {n} facts about {topic} that most people do not know?
Imagine you are {role}. Describe how {topic} changed your work.
Write a letter from {role} to {role2} concerning {topic}.
Which is better for {audience}: {topic} or {topic2}? Justify your choice.
Write a poem about a {object} and a {animal}.
Write a Python script that {task} for a list of {object}s.
Give {n} arguments against {topic} and {n} in favour of it.
If a {animal} eats {n} kilograms of {food} a day, how much does it eat in {m} days?
How do people in {place} celebrate with {food}?
Change this function so that it returns None when its first argument is empty.\n\n```python\n{code}\n```
Convert this function to use keyword-only arguments and return the full code:\n\n```python\n{code}\n```
Simplify the code below.\n\n{code}
Describe the inputs and outputs of this code.\n\n```python\n{code}\n```
Give the following text a title and a one-sentence abstract.\n\n{passage}
Using only the information below, say what a beginner should know.\n\n{passage}
Shorten this text to half its length:\n\n{passage}
"""

_EVALUATION = r"""
Compose an engaging blog post about {topic}, with cultural details and must-know facts.
Pretend to be {role} and answer: why should anyone trust you on {topic}?
Think step by step. A train leaves {place} at {n} o'clock and travels {m} km each hour. How far is it after {k} hours?
Three friends share {m} {object}s equally after losing {k}. How many does each get?
Who invented the {object}, and how did it reach {place}?
Which of these is the odd one out, and why: {animal}, {animal2}, {food}?
Translate German to English: Der Hund sucht das Haus und findet einen Garten.\nThen do the same into {language}.
Could you write a captivating short story beginning with: "The old {object} in {place} had a secret"?
Sketch the design of a program that {task}. Discuss its complexity, then implement it.
Analyse the economic effects of {topic} on {place}.
From the facts that a {animal} needs {food} and that winter is coming, what follows?
Extract every noun from: "{role} carried a {object} and some {food} to {place}."
Refactor this function into two functions. Give the entire code.\n\n```python\n{code}\n```
Make the following function tolerate missing keys; reply with the modified code only.\n\n```python\n{code}\n```
Below is a piece of code. Insert a guard for negative numbers and output all of it.\n\n```python\n{code}\n```
TL;DR of the following, please:\n\n{passage}
Context: {passage}\n\nQuestion: what does the context say about `{name}`? Answer briefly.
Produce a reference page (description, parameters, example) from this text:\n\n{passage}
"""


def _lines(block: str) -> tuple[str, ...]:
    return tuple(line.replace("\\n", "\n") for line in block.strip().split("\n"))


TEMPLATES: dict[str, dict[str, tuple[str, ...]]] = {
    "train": {"chat": _lines(_CHAT_TRAIN), "code": _lines(_CODE_TRAIN), "text": _lines(_TEXT_TRAIN)},
    "calibration": {"mixed": _lines(_CALIBRATION)},
    "evaluation": {"mixed": _lines(_EVALUATION)},
}
"""Templates by split and family; a family's share of the prompts is set in ``prompts``."""


def _words(block: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in block.replace("\n", " ").split(";") if word.strip())


FILLERS: dict[str, tuple[str, ...]] = {
    "topic": _words(
        """photosynthesis; compound interest; the water cycle; volcanoes; black holes; the printing press; recycling;
        time management; public speaking; the immune system; electric cars; solar power; machine learning; chess
        openings; sleep; vaccines; the stock market; inflation; gravity; plate tectonics; bicycle maintenance; bread
        baking; home gardening; the Roman Empire; the French Revolution; jazz music; impressionist painting; haiku;
        meditation; running a marathon; budgeting; job interviews; remote work; teamwork; leadership; negotiation; the
        internet; encryption; open-source software; version control; databases; sorting algorithms; recursion; unit
        testing; object-oriented programming; web scraping; cloud computing; computer networks; passwords; phishing;
        climate change; biodiversity; coral reefs; deforestation; migration of birds; honey bees; the human heart;
        nutrition; dental care; first aid; mental health; stress at work; learning a language; reading habits; note
        taking; study techniques; probability; fractions; prime numbers; the Pythagorean theorem; statistics; calculus;
        atoms; chemical reactions; acids and bases; magnetism; sound waves; lenses; the speed of light; rockets;
        satellites; the Moon landing; Mars; comets; ocean tides; hurricanes; earthquakes; glaciers; deserts; rivers;
        city planning; public transport; architecture; photography; film editing; theatre; folk tales; mythology;
        philosophy; ethics; democracy; human rights; taxes; insurance; small businesses; marketing; customer service;
        supply chains; renewable energy; nuclear power; batteries; 3D printing; robotics; drones; video games; board
        games; football; tennis; yoga; swimming; hiking; camping; coffee; tea; chocolate; cheese; spices; fermentation;
        pottery; knitting; woodworking; calligraphy; origami; dog training; cat behaviour; aquariums; house plants;
        composting; minimalism; volunteering; friendship; parenting; ageing; happiness"""
    ),
    "audience": _words(
        """a child; a ten-year-old; a university student; my grandmother; a busy manager; a beginner; an engineer; a
        tourist; a new employee; a teacher; a group of teenagers; a politician; someone in a hurry; a journalist"""
    ),
    "form": _words(
        """paragraph; poem; story; speech; essay; letter; newspaper article; advertisement; summary; review; song;
        diary entry; press release; fable"""
    ),
    "tone": _words("""friendly; formal; funny; serious; polite; dramatic; calm; enthusiastic; modest; concise; warm"""),
    "role": _words(
        """a doctor; a lawyer; a farmer; a pilot; a nurse; a chef; a librarian; a software developer; a historian; a
        plumber; a gardener; a physicist; a bank clerk; a tour guide; a carpenter; an architect; a musician; a coach;
        a police officer; a shop owner; a biologist; an accountant; a designer; a translator"""
    ),
    "object": _words(
        """lamp; chair; pencil; bottle; clock; umbrella; camera; guitar; bicycle; mirror; notebook; key; basket; ladder;
        kettle; wallet; blanket; hammer; candle; telescope; ticket; helmet; suitcase; phone; compass"""
    ),
    "animal": _words("""cat; dog; horse; owl; fox; whale; tiger; rabbit; penguin; snake; bear; frog; elephant; bee"""),
    "food": _words(
        """rice; tomatoes; apples; bread; eggs; lentils; salmon; mushrooms; potatoes; honey; beans; cheese"""
    ),
    "place": _words(
        """Paris; Japan; Brazil; Egypt; Canada; India; Kenya; Norway; Mexico; Rome; Australia; New York; Peru; Greece;
        Morocco; Vietnam; Scotland; Istanbul"""
    ),
    "language": _words("""French; Spanish; German; Italian; Portuguese"""),
    "verb": _words("""goed; walk; runned; travel; fly; drived"""),
    "name_person": _words("""Anna; Omar; Li; Sofia; James; Priya; Tom; Maria; Ken; Fatima"""),
    "task": _words(
        """counts the words in a file; reverses a string; checks whether a number is prime; merges two sorted lists;
        reads a CSV file and prints the average of a column; finds duplicates in a list; converts Celsius to
        Fahrenheit; computes the factorial of a number; downloads a web page; removes vowels from a text; sorts
        dictionaries by a key; groups people by age; validates an email address; draws a bar chart; computes Fibonacci
        numbers; finds the longest word; parses a date; flattens nested lists; searches a binary tree; rolls dice;
        simulates a bank account; encrypts a message with a Caesar cipher; renames files in a folder; finds the second
        largest number; transposes a matrix; checks for palindromes; computes a moving average; caches results"""
    ),
}
"""Words for training and calibration prompts."""

HELD_OUT_FILLERS: dict[str, tuple[str, ...]] = FILLERS | {
    "topic": _words(
        """lighthouses; the Silk Road; antibiotics; origami cranes; tax havens; beekeeping; the Olympic Games; quantum
        computing; urban foxes; sign language; avalanches; opera; blockchain; sailing; archaeology; the periodic table;
        comic books; fair trade; night shifts; wildfire prevention; museums; airships; perfume; puppet theatre"""
    ),
    "place": _words("""Iceland; Chile; Hawaii; Berlin; Nepal; Portugal; Singapore; Cuba"""),
    "object": _words("""violin; kite; anchor; typewriter; lantern; backpack; drum; stapler; globe; whistle"""),
    "animal": _words("""otter; camel; parrot; hedgehog; shark; lizard; goat"""),
    "task": _words(
        """solves a maze; finds the median of two sorted arrays; tokenises arithmetic expressions; schedules meetings
        without overlap; implements a least-recently-used cache; detects cycles in a graph; compresses runs of
        characters; computes the longest common subsequence"""
    ),
}
"""Words for evaluation prompts: topics, places, objects, animals and tasks that no training prompt names."""
